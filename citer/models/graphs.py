"""CUDA graphs: short forwards at fixed shapes, captured once and then replayed.

A GPU finishes a small model's step faster than Python can launch its kernels. A graph is a single
launch, but its shapes and addresses are fixed. Rows, tokens and positions are therefore padded to
powers of two. Idle slots serve as padding rows. Padding tokens write beyond the length of their
slots. No token attends to those positions, and later tokens overwrite them.

docs/results.md has what it gains on an H200.
"""

import gc
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, islice, repeat
from typing import Any, NamedTuple

import torch
from torch import Tensor

from citer.models.cache import Batch, Read, Row, SlotCache
from citer.models.pair import LanguageModel

WIDEST = 32  # tokens of a row
MOST = 256  # tokens of a forward; beyond that, computing takes longer than launching
DRAW = 5  # integers of `Sampling.numbers`
SHORTEST = 256  # positions of the smallest graph
WARM_UPS = 3  # as in torch.cuda.make_graphed_callables

Run = Callable[[], Tensor]
Capture = Callable[[Run], Run]


class Shape(NamedTuple):
    """`rows` rows of `tokens` tokens in `span` positions. The last `wanted` states are read.

    `noisy` of the rows sample.
    """

    rows: int
    tokens: int
    wanted: int
    span: int
    noisy: int


class Graphs:
    """The graphs of one model and its cache, captured when a shape first occurs.

    `capturing` makes a new `Capture` when all graphs are dropped.
    """

    def __init__(
        self, model: LanguageModel, cache: SlotCache, capturing: Callable[[], Capture]
    ) -> None:
        self._model = model
        self._cache = cache
        self._capturing = capturing
        self._capture = capturing()
        self._graphs: dict[Shape, tuple[Tensor, Run]] = {}
        self._made_for: tuple[Read | None, int] = (None, 0)

    def fit(self, rows: Sequence[Row]) -> bool:
        """Return whether these rows are short enough to be faster with a graph."""
        count, tokens = self._filled_up(rows)
        return tokens <= WIDEST and count * tokens <= MOST

    def run(self, rows: Sequence[Row], read: Read) -> list[list[list[float]]]:
        """Run the rows and apply `read`. Returns one row of results per row of `Row.given`.

        A run makes one small transfer to the device, and one back, for which the host waits.
        """
        count, tokens = self._filled_up(rows)
        row_N = sorted([*rows, *islice(self._idle(rows), count - len(rows))])
        shape = self._shape(row_N, rows, tokens)
        self._cache.reserve(shape.span)
        self._drop_stale(read)
        packed_NC = self._packed(row_N, shape)
        if shape not in self._graphs:  # the warm-up runs on `held_NC`: a valid input
            held_NC = packed_NC.to(self._model.device)
            forward = partial(static_forward, self._model, self._cache, shape, read, held_NC)
            self._graphs[shape] = held_NC, self._capture(forward)
        held_NC, replay = self._graphs[shape]
        held_NC.copy_(packed_NC, non_blocking=True)
        out_NUC = replay().tolist()
        for row in rows:
            self._cache.lengths[row.slot] = len(row.ids)
        place = {row.slot: n for n, row in enumerate(row_N)}
        return [out_NUC[place[row.slot]][shape.wanted - len(row.given) :] for row in rows]

    def _filled_up(self, rows: Sequence[Row]) -> tuple[int, int]:
        """Return the numbers of rows and tokens of the smallest graph that fits these rows."""
        tokens = max(len(row.ids) - self._cache.lengths[row.slot] for row in rows)
        return min(_power(len(rows)), len(self._cache.lengths)), _power(tokens)

    def _idle(self, rows: Sequence[Row]) -> Iterator[Row]:
        busy = {row.slot for row in rows}
        slots = range(len(self._cache.lengths))
        return (Row(slot, (), ()) for slot in slots if slot not in busy)

    def _shape(self, row_N: Sequence[Row], rows: Sequence[Row], tokens: int) -> Shape:
        """Return the shape for `rows`, which idle ones fill up to `row_N`."""
        longest = max(self._cache.lengths[row.slot] for row in row_N)
        # Two graphs serve all cases: 1 state per row is read, or all are.
        wanted = 1 if all(len(row.given) == 1 for row in rows) else tokens
        sampled = sum(bool(row.noise) for row in rows)
        noisy = min(_power(sampled), len(row_N)) if sampled else 0
        return Shape(len(row_N), tokens, wanted, _power(max(SHORTEST, longest + tokens)), noisy)

    def _drop_stale(self, read: Read) -> None:
        """Drop all graphs if the reader or the cache has changed. Graphs keep raw addresses."""
        made_for = (read, self._cache.capacity)
        if made_for != self._made_for:
            self._graphs.clear()
            self._capture = self._capturing()
            self._made_for = made_for

    def _packed(self, rows: Sequence[Row], shape: Shape) -> Tensor:
        """Return packed_NC, with slot, start, count, T ids and the rows of `given` in each row.

        The fourth column has the numbers of all rows, first of those that sample.
        """
        read_with = [_read_with(row, shape.noisy > 0) for row in rows]
        given = shape.wanted * max(len(given) for all_given in read_with for given in all_given)
        sampling = sorted(range(len(rows)), key=lambda n: not rows[n].noise)
        table = []
        for row, all_given, nth in zip(rows, read_with, sampling, strict=True):
            start = self._cache.lengths[row.slot]
            new, known = row.ids[start:], list(chain.from_iterable(all_given))
            after, before = [0] * (shape.tokens - len(new)), [0] * (given - len(known))
            table.append([row.slot, start, len(new), nth, *new, *after, *before, *known])
        # Pinned, so that the copy is asynchronous; the memory is not reused before it ends.
        return torch.tensor(table, pin_memory=self._model.device.type == "cuda")


def static_forward(
    model: LanguageModel, cache: SlotCache, shape: Shape, read: Read, packed_NC: Tensor
) -> Tensor:
    """Run a forward and return out_NUC. Work on the host depends on the shape only."""
    given = packed_NC.shape[1] - 4 - shape.tokens
    place_N4, ids_NT, given_NC = packed_NC.split((4, shape.tokens, given), 1)
    slot_N, start_N, count_N, sampling_N = place_N4.unbind(1)
    # Reading a slice needs no copy.
    rows = slice(0, shape.rows) if shape.rows == len(cache.lengths) else slot_N
    batch = _lay_out(shape, rows, slot_N, start_N, count_N)
    hidden_WH = model.consume(ids_NT.flatten(), batch, cache)
    given_WK = given_NC.reshape(len(hidden_WH), given // shape.wanted)
    noise_R6 = _noise(given_WK, sampling_N[: shape.noisy], shape.wanted)
    given_WK = given_WK[:, :-DRAW] if shape.noisy else given_WK
    out_WC = read(hidden_WH, given_WK, noise_R6)
    return out_WC.unflatten(0, (shape.rows, shape.wanted))


def _lay_out(
    shape: Shape, rows: slice | Tensor, slot_N: Tensor, start_N: Tensor, count_N: Tensor
) -> Batch:
    """Lay out as many tokens in each row: `count_N` new ones, and padding."""
    column_T = torch.arange(shape.tokens, device=slot_N.device)
    column_NU = (count_N[:, None] - shape.wanted + column_T[: shape.wanted]).clamp(min=0)
    first_N = torch.arange(shape.rows, device=slot_N.device) * shape.tokens
    batch = Batch(
        rows,
        shape.span,
        fresh=False,
        slot_M=slot_N.repeat_interleave(shape.tokens),
        position_M=(start_N[:, None] + column_T).flatten(),
        width=shape.tokens,
        wanted_W=(first_N[:, None] + column_NU).flatten(),
    )
    return batch.masked()


def _noise(given_WK: Tensor, sampling_S: Tensor, wanted: int) -> Tensor:
    """Return noise_R6 of S rows, whose numbers are the last columns of `given_WK`."""
    state_U = torch.arange(wanted, device=given_WK.device)
    row_R = (sampling_S[:, None] * wanted + state_U).flatten()
    return torch.cat([row_R[:, None], given_WK[row_R, -DRAW:]], 1)


def cuda_graphs(model: LanguageModel, cache: SlotCache) -> Graphs | None:
    """Make graphs for a model on a GPU, unless `pair.cuda_graphs` is off."""
    switched_off = model.params and not model.params.cuda_graphs
    captured = model.device.type == "cuda" and not switched_off
    return Graphs(model, cache, partial(cuda_capture, model.device)) if captured else None


def no_graphs(model: LanguageModel, cache: SlotCache) -> None:
    """Make no graphs, so that every kernel is launched by itself."""


def _read_with(row: Row, noisy: bool) -> Sequence[Sequence[int]]:
    """Return the rows of `given`, each with its noise if any row of the graph has some."""
    if not noisy:
        return row.given
    noise = row.noise or repeat((0,) * DRAW)  # temperature 0
    return [(*given, *numbers) for given, numbers in zip(row.given, noise, strict=False)]


def _power(number: int) -> int:
    """Return the next power of two."""
    return 1 << (number - 1).bit_length()


def cuda_capture(device: torch.device) -> Capture:
    """Make a `Capture` for a device, whose graphs share one memory pool.

    They can share it because one graph runs at a time, and its output is read before the next one
    runs. Each call makes a new pool, since torch refuses a pool after all its graphs are freed.
    Another thread may load a model during a capture.
    """
    return partial(_captured, device, torch.cuda.Stream(device), torch.cuda.graph_pool_handle())


def _captured(device: torch.device, stream: torch.cuda.Stream, pool: Any, forward: Run) -> Run:
    with torch.cuda.device(device):
        # Warm up on the stream of the capture, so that cuBLAS allocates its workspace there.
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UPS):
                forward()
        graph = torch.cuda.CUDAGraph()
        gc.disable()  # freeing another graph during a capture would invalidate it
        try:
            with torch.cuda.graph(graph, pool, stream, capture_error_mode="thread_local"):
                out = forward()
        finally:
            gc.enable()

    def replay() -> Tensor:
        graph.replay()
        return out

    return replay
