"""Run a model with one KV cache slot per sequence. Only tokens that a slot lacks are computed."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, islice
from typing import Any, NamedTuple

import torch
from torch import Tensor

from citer.decoding.answer import Trunk
from citer.decoding.work import Work
from citer.models.cache import SlotCache
from citer.models.feed import Read, Turn
from citer.models.graphs import Graphs, cuda_graphs
from citer.models.pair import LanguageModel

Ids = Sequence[int]
Rows = list[list[float]]
MakeGraphs = Callable[[LanguageModel, SlotCache], Graphs | None]


class Held(NamedTuple):
    """The first `kept` tokens stay in a slot. If it is then empty, it starts from its trunk."""

    slot: int
    kept: int
    trunk: Trunk | None = None


class Lane:
    """A model, its cache with one slot per sequence, and copies of the trunks that sequences share.

    A trunk is computed once. The lane keeps as many trunks as it has slots, the last used ones.
    `consume` serves as prefill, decode step and catch-up: it computes the tokens that slots lack.
    """

    def __init__(
        self, model: LanguageModel, slots: int, make_graphs: MakeGraphs = cuda_graphs
    ) -> None:
        self.model = model
        self.cache = cache = model.cache(slots)
        self.total = Work()
        self._graphs = make_graphs(model, cache) if isinstance(cache, SlotCache) else None
        self._trunks: dict[Ids, Any] = {}  # copies of slots

    def prepare(self, all_held: Sequence[Held]) -> None:
        """Cut each slot to the tokens that it keeps. Start empty slots from their trunks."""
        for slot, kept, _ in all_held:
            self.cache.cut(slot, min(kept, self.cache.lengths[slot]))
        fresh = [(h.slot, h.trunk) for h in all_held if h.trunk and not self.cache.lengths[h.slot]]
        if not fresh:
            return
        slots = {trunk.ids: slot for slot, trunk in fresh}
        new = {ids: slot for ids, slot in slots.items() if ids not in self._trunks}
        if new:
            self._forward([Turn(slot, ids, [()]) for ids, slot in new.items()])
        self._keep(slots, {ids: self.cache.copy(slot) for ids, slot in new.items()})
        for slot, trunk in fresh:
            self.cache.paste(slot, self._trunks[trunk.ids], trunk.shared)
        while len(self._trunks) > len(self.cache.lengths):
            self._trunks.pop(next(iter(self._trunks)))

    def _keep(self, used: Iterable[Ids], copies: Mapping[Ids, Any]) -> None:
        """Add new trunks and move all `used` ones to the end. `prepare` drops the first ones."""
        for ids in used:
            self._trunks[ids] = copies.get(ids) or self._trunks.pop(ids)

    def consume(self, turns: Sequence[Turn], read: Read) -> list[Rows]:
        """Compute the tokens that the slots lack. No two turns may have the same slot.

        Applies `read` to the last states of each turn. Returns one row of results per row of
        `Turn.given`.
        """
        replayed = self._replay(turns, read) if self._graphs else {}
        left = [turn for turn in turns if turn.slot not in replayed] if replayed else turns
        if not left:
            return [replayed[turn.slot] for turn in turns]
        groups = self._groups(left)
        parts = list(map(self._forward, groups))
        given_WK, noise_R6 = _read_with(left, self.model.device)
        lines = iter(read(_in_order(parts, groups, left), given_WK, noise_R6).tolist())
        rows = [list(islice(lines, len(turn.given))) for turn in left]
        if not replayed:
            return rows
        replayed |= zip(_slots(left), rows, strict=True)
        return [replayed[turn.slot] for turn in turns]

    def _replay(self, turns: Sequence[Turn], read: Read) -> dict[int, Rows]:
        """Run the turns of filled slots as a CUDA graph, if they are short enough for one."""
        begun = [turn for turn in turns if self.cache.lengths[turn.slot]]
        if not (self._graphs and begun and self._graphs.fit(begun)):
            return {}
        self._count(begun)
        return dict(zip(_slots(begun), self._graphs.run(begun, read), strict=True))

    def _groups(self, turns: Sequence[Turn]) -> list[list[Turn]]:
        """Group the turns by forward. Empty slots are prefilled in a forward of their own.

        In a common forward, attention would pad all short turns to the length of a prompt. This
        costs more than a second forward.
        """
        begun: list[Turn] = []
        fresh: list[Turn] = []
        for turn in turns:
            (begun if self.cache.lengths[turn.slot] else fresh).append(turn)
        return [group for group in (begun, fresh) if group]

    def _forward(self, turns: Sequence[Turn]) -> Tensor:
        """Run a forward. Return hidden_WH of the last tokens of each turn."""
        news = [turn.ids[self.cache.lengths[turn.slot] :] for turn in turns]
        self._count(turns)
        wanted = [len(turn.given) for turn in turns]
        feed = self.cache.begin(_slots(turns), [len(new) for new in news], wanted)
        ids_M = torch.tensor(list(chain.from_iterable(news)), device=self.model.device)
        return self.model.consume(ids_M, feed, self.cache)

    def _count(self, turns: Sequence[Turn]) -> None:
        """Count a forward of these turns. Call it before the forward changes the cache."""
        counts = [len(turn.ids) - self.cache.lengths[turn.slot] for turn in turns]
        assert min(counts) > 0, "nothing to consume"
        self.total.add(sum(counts), sum(len(turn.ids) for turn in turns))


def _slots(turns: Sequence[Turn]) -> list[int]:
    return [turn.slot for turn in turns]


def _read_with(turns: Sequence[Turn], device: torch.device) -> tuple[Tensor, Tensor]:
    """Return given_WK and noise_R6 of a `Read`."""
    given = [row for turn in turns for row in turn.given]
    drawn = chain.from_iterable(turn.noise or [()] * len(turn.given) for turn in turns)
    noise = [(n, *numbers) for n, numbers in enumerate(drawn) if numbers]
    noise_R6 = torch.tensor(noise, dtype=torch.int64, device=device)
    return torch.tensor(given, device=device), noise_R6


def _in_order(
    parts: Sequence[Tensor], groups: Sequence[Sequence[Turn]], turns: Sequence[Turn]
) -> Tensor:
    """Join the hidden states of all groups. Return hidden_WH in the order of the turns."""
    if len(parts) == 1:
        return parts[0]
    place = {turn.slot: n for n, turn in enumerate(turns)}
    order = [place[turn.slot] for group in groups for turn in group for _ in turn.given]
    return torch.cat(list(parts))[torch.tensor(order, device=parts[0].device).argsort(stable=True)]
