"""Short forwards at fixed shapes, each captured once as a CUDA graph and replayed from then on.

A GPU is through with a small model's step before Python has launched its kernels one by one. A
graph is one launch, of shapes and addresses that never change: rows, tokens and positions are
filled up to powers of two. Rows are filled up with slots that nobody asked for. These, and the
tokens that are too many, write beyond what their slots hold, where no token looks and the next
ones write again.

Tested on a CPU alone, where operations are replayed in place of kernels: no GPU has run it yet.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import NamedTuple

import torch
from torch import Tensor

from citer.models.cache import SlotCache
from citer.models.capture import Capture, cuda_capture
from citer.models.feed import Read, Turn, lay_out_evenly
from citer.models.pair import LanguageModel

WIDEST = 32  # tokens of a row
MOST = 256  # tokens of a forward; of more it is the arithmetic that takes the time
SHORTEST = 256  # positions


class Shape(NamedTuple):
    """N rows of T tokens, the states after `wanted` of which are read, in `span` positions."""

    rows: int
    tokens: int
    wanted: int
    span: int


class Graphs:
    """The graphs of one model over its cache, made as shapes come up.

    A `Capture` turns a forward into one that is replayed; `capturing` makes a new one whenever all
    graphs are dropped.
    """

    def __init__(
        self, model: LanguageModel, cache: SlotCache, capturing: Callable[[], Capture]
    ) -> None:
        self._model = model
        self._cache = cache
        self._capturing = capturing
        self._capture = capturing()
        self._graphs: dict[Shape, _Graph] = {}
        self._made_for: tuple[Read | None, int] = (None, 0)

    def fit(self, turns: Sequence[Turn]) -> bool:
        """Whether these turns are short enough to gain by a graph."""
        rows, tokens = self._filled_up(turns)
        return tokens <= WIDEST and rows * tokens <= MOST

    def run(self, turns: Sequence[Turn], read: Read) -> list[list[list[float]]]:
        """What is read of each turn, a row for each of its last tokens.

        All goes to the device in one small transfer and comes back in another, which is the one
        time that the host waits.
        """
        rows, tokens = self._filled_up(turns)
        turn_N = sorted([*turns, *islice(self._idle(turns), rows - len(turns))])
        shape = Shape(rows, tokens, _wanted(turns, tokens), self._span(turn_N, tokens))
        self._cache.reserve(shape.span)
        self._drop_stale(read)
        packed_NC = self._packed(turn_N, shape)
        if shape not in self._graphs:
            forward = partial(static_forward, self._model, self._cache, shape, read)
            self._graphs[shape] = _Graph(forward, packed_NC.to(self._model.device), self._capture)
        out_NUC = self._graphs[shape](packed_NC).tolist()
        for turn in turns:
            self._cache.lengths[turn.slot] = len(turn.ids)
        row = {turn.slot: n for n, turn in enumerate(turn_N)}
        return [out_NUC[row[turn.slot]][shape.wanted - len(turn.given) :] for turn in turns]

    def _filled_up(self, turns: Sequence[Turn]) -> tuple[int, int]:
        """Rows and tokens of the graph for these turns."""
        tokens = max(len(turn.ids) - self._cache.lengths[turn.slot] for turn in turns)
        return min(_power(len(turns)), len(self._cache.lengths)), _power(tokens)

    def _idle(self, turns: Sequence[Turn]) -> Iterator[Turn]:
        asked = {turn.slot for turn in turns}
        slots = range(len(self._cache.lengths))
        return (Turn(slot, (), ()) for slot in slots if slot not in asked)

    def _span(self, turns: Sequence[Turn], tokens: int) -> int:
        longest = max(self._cache.lengths[turn.slot] for turn in turns)
        return _power(max(SHORTEST, longest + tokens))

    def _drop_stale(self, read: Read) -> None:
        """Graphs know a reader's weights and the cache by their addresses, whatever is there."""
        made_for = (read, self._cache.capacity)
        if made_for != self._made_for:
            self._graphs.clear()
            self._capture = self._capturing()
            self._made_for = made_for

    def _packed(self, turns: Sequence[Turn], shape: Shape) -> Tensor:
        """packed_NC: slot, start, count, T ids, and what is given with the tokens that are read."""
        given = shape.wanted * max(len(row) for turn in turns for row in turn.given)
        table = []
        for turn in turns:
            start = self._cache.lengths[turn.slot]
            new, known = turn.ids[start:], list(chain.from_iterable(turn.given))
            after, before = [0] * (shape.tokens - len(new)), [0] * (given - len(known))
            table.append([turn.slot, start, len(new), *new, *after, *before, *known])
        # Pinned, so that the copy waits for nothing; the memory is not used again before its end.
        return torch.tensor(table, pin_memory=self._model.device.type == "cuda")


def static_forward(
    model: LanguageModel, cache: SlotCache, shape: Shape, read: Read, packed_NC: Tensor
) -> Tensor:
    """out_NUC; what the host does here depends on the shape alone."""
    given = packed_NC.shape[1] - 3 - shape.tokens
    place_N3, ids_NT, given_NC = packed_NC.split((3, shape.tokens, given), 1)
    slot_N, start_N, count_N = place_N3.unbind(1)
    whole = shape.rows == len(cache.lengths)
    feed = lay_out_evenly(
        slice(0, shape.rows) if whole else slot_N,  # a slice is read uncopied
        shape.span,
        shape.tokens,
        shape.wanted,
        slot_N,
        start_N,
        count_N,
    )
    hidden_WH = model.consume(ids_NT.flatten(), feed, cache)
    out_WC = read(hidden_WH, given_NC.reshape(len(hidden_WH), given // shape.wanted))
    return out_WC.unflatten(0, (shape.rows, shape.wanted))


class _Graph:
    """A captured forward with the memory that it reads its input from."""

    def __init__(
        self, forward: Callable[[Tensor], Tensor], packed_NC: Tensor, capture: Capture
    ) -> None:
        self._packed_NC = packed_NC  # of a first forward: warming up runs it
        self._replay = capture(partial(forward, packed_NC))

    def __call__(self, packed_NC: Tensor) -> Tensor:
        """out_NUC, which the next graph may write over."""
        self._packed_NC.copy_(packed_NC, non_blocking=True)
        return self._replay()


def cuda_graphs(model: LanguageModel, cache: SlotCache) -> Graphs | None:
    """Graphs for a model on a GPU, unless it was loaded to do without (`pair.cuda_graphs`)."""
    captured = model.device.type == "cuda" and model.cuda_graphs
    return Graphs(model, cache, cuda_capture) if captured else None


def no_graphs(model: LanguageModel, cache: SlotCache) -> None:
    """All forwards are launched kernel by kernel."""


def _wanted(turns: Sequence[Turn], tokens: int) -> int:
    """The last token of each row alone, or all: two graphs instead of many."""
    return 1 if all(len(turn.given) == 1 for turn in turns) else tokens


def _power(number: int) -> int:
    """The next power of two."""
    return 1 << (number - 1).bit_length()
