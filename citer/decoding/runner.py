"""Run a model with one KV cache slot per sequence. Only tokens that a slot lacks are computed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import NamedTuple

import torch
from torch import Tensor

from citer.decoding.answer import Trunk, Work
from citer.decoding.policy import Scorer, StepView
from citer.models.cache import Copied, Read, Row, SlotCache
from citer.models.forward import wanted_hidden
from citer.models.graphs import Graphs, cuda_graphs
from citer.models.pair import LanguageModel, Pair

Ids = Sequence[int]
Results = list[list[float]]
MakeGraphs = Callable[[LanguageModel, SlotCache], Graphs | None]


class Held(NamedTuple):
    """The first `kept` tokens stay in a slot. If it is then empty, it starts from its trunk."""

    slot: int
    kept: int
    trunk: Trunk | None = None


class ModelRunner:
    """A model, its cache with one slot per sequence, and copies of the trunks that sequences share.

    A trunk is computed once. The runner keeps as many trunks as it has slots, the last used ones.
    """

    def __init__(
        self, model: LanguageModel, slots: int, make_graphs: MakeGraphs = cuda_graphs
    ) -> None:
        self.model = model
        self.cache = SlotCache(model.network, slots)
        self.total = Work()
        self._graphs = make_graphs(model, self.cache) if model.forward is wanted_hidden else None
        self._trunks: dict[Ids, Copied] = {}

    def prepare(self, all_held: Sequence[Held]) -> None:
        """Cut each slot to the tokens that it keeps. Start empty slots from their trunks."""
        for slot, kept, _ in all_held:
            self.cache.cut(slot, min(kept, self.cache.lengths[slot]))
        fresh = [(h.slot, h.trunk) for h in all_held if h.trunk and not self.cache.lengths[h.slot]]
        slots = {trunk.ids: slot for slot, trunk in fresh}
        new = {ids: slot for ids, slot in slots.items() if ids not in self._trunks}
        if new:
            self._forward([Row(slot, ids, [()]) for ids, slot in new.items()])
        copies = {ids: self.cache.copy(slot) for ids, slot in new.items()}
        for ids in slots:  # they go to the end, since the first ones are dropped below
            self._trunks[ids] = copies.get(ids) or self._trunks.pop(ids)
        for slot, trunk in fresh:
            self.cache.paste(slot, self._trunks[trunk.ids], trunk.shared)
        while len(self._trunks) > len(self.cache.lengths):
            self._trunks.pop(next(iter(self._trunks)))

    def consume(self, rows: Sequence[Row], read: Read) -> list[Results]:
        """Compute the tokens that the slots lack: as prefill, decode step or catch-up.

        No two rows may have the same slot. Returns what `read` gives per row of `Row.given`.
        """
        results = self._replay(rows, read)
        if left := [row for row in rows if row.slot not in results]:
            given_WK, noise_R6 = _read_with(left, self.model.device)
            lines = iter(read(self._states(left), given_WK, noise_R6).tolist())
            results |= {row.slot: list(islice(lines, len(row.given))) for row in left}
        return [results[row.slot] for row in rows]

    def _replay(self, rows: Sequence[Row], read: Read) -> dict[int, Results]:
        """Run the rows of filled slots as a CUDA graph, if they are short enough for one."""
        begun = [row for row in rows if self.cache.lengths[row.slot]]
        if not (self._graphs and begun and self._graphs.fit(begun)):
            return {}
        self._count(begun)
        return dict(zip(_slots(begun), self._graphs.run(begun, read), strict=True))

    def _states(self, rows: Sequence[Row]) -> Tensor:
        """Return hidden_WH of the rows, in their order.

        Empty slots are prefilled in a forward of their own. This costs less than to pad all short
        rows to the length of a prompt.
        """
        begun = [row for row in rows if self.cache.lengths[row.slot]]
        fresh = [row for row in rows if not self.cache.lengths[row.slot]]
        states: dict[int, Tensor] = {}
        for group in filter(None, (begun, fresh)):
            parts = self._forward(group).split([len(row.given) for row in group])
            states |= zip(_slots(group), parts, strict=True)
        return torch.cat([states[row.slot] for row in rows])

    def _forward(self, rows: Sequence[Row]) -> Tensor:
        """Run a forward. Return hidden_WH of the last tokens of each row."""
        news = [row.ids[self.cache.lengths[row.slot] :] for row in rows]
        self._count(rows)
        wanted = [len(row.given) for row in rows]
        batch = self.cache.begin(_slots(rows), [len(new) for new in news], wanted)
        ids_M = torch.tensor(list(chain.from_iterable(news)), device=self.model.device)
        return self.model.consume(ids_M, batch, self.cache)

    def _count(self, rows: Sequence[Row]) -> None:
        """Count a forward of these rows. Call it before the forward changes the cache."""
        counts = [len(row.ids) - self.cache.lengths[row.slot] for row in rows]
        assert min(counts) > 0, "nothing to consume"
        self.total.add(sum(counts), sum(len(row.ids) for row in rows))


def _slots(rows: Sequence[Row]) -> list[int]:
    return [row.slot for row in rows]


def _read_with(rows: Sequence[Row], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return given_WK and noise_R6 of a `Read`."""
    given = [numbers for row in rows for numbers in row.given]
    drawn = chain.from_iterable(row.noise or [()] * len(row.given) for row in rows)
    noise = [(n, *numbers) for n, numbers in enumerate(drawn) if numbers]
    noise_R6 = torch.tensor(noise, dtype=torch.int64, device=device)
    return torch.tensor(given, device=device), noise_R6


@dataclass(frozen=True)
class Drafts:
    """Computes the SLM's next token and its score by each scorer, on the device.

    All columns go to the host in one transfer, in float64, which holds every token id exactly.
    """

    pair: Pair
    scorers: tuple[Scorer, ...]

    def __call__(self, hidden_NH: Tensor, given_N2: Tensor, noise_R6: Tensor) -> Tensor:
        """Return draft_NC in float64: the token, and one score per scorer.

        `given_N2` has the request's seed and the token's position in the answer.
        """
        z_NV, seen_NV = self._logits(hidden_NH, noise_R6)
        view = StepView(hidden_NH, seen_NV, *given_N2.unbind(1))
        # A score that overflowed is NaN. It counts as 0, so that the token is not accepted.
        scores = (scorer(view).nan_to_num(0.0) for scorer in self.scorers)
        columns = [z_NV.argmax(-1), *scores]
        return torch.stack([column.double() for column in columns], 1)

    def _logits(self, hidden_NH: Tensor, noise_R6: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits to choose by, and those for the scorers.

        Those keep the logits of dropped tokens: heads are trained with no token impossible.
        """
        choices, own_NV = self.pair.vocabulary.choices, self.pair.slm.logits(hidden_NH)
        z_NV = choices(own_NV, noise_R6)
        if not len(noise_R6):
            return z_NV, z_NV
        row_R = noise_R6[:, 0]
        z_RV = z_NV[row_R]
        dropped_RV = z_RV == torch.finfo(z_RV.dtype).min
        seen_RV = torch.where(dropped_RV, choices(own_NV[row_R]), z_RV)
        return z_NV, z_NV.index_copy(0, row_R, seen_RV)
