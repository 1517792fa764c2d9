"""One model at work on many answers: it consumes what it has not yet seen of each."""

from collections.abc import Callable, Sequence
from itertools import chain, islice, takewhile

import torch
from torch import Tensor

from citer.decoding.work import Work
from citer.models.cache import Copied, SlotCache
from citer.models.feed import Read, Turn
from citer.models.graphs import Graphs, cuda_graphs
from citer.models.pair import LanguageModel

Ids = Sequence[int]
Rows = list[list[float]]
MakeGraphs = Callable[[LanguageModel, SlotCache], Graphs | None]


class Lane:
    """A model with a cache slot for each answer, and copies of the trunks that answers share.

    One verb does prefill, step and catch-up: `consume` feeds each slot the tokens that it lacks.
    """

    def __init__(
        self, model: LanguageModel, slots: int, make_graphs: MakeGraphs = cuda_graphs
    ) -> None:
        self.model = model
        self.cache = SlotCache(model.network, slots)
        self.total = Work()
        self._graphs = make_graphs(model, self.cache)
        self._trunks: dict[Ids, Copied] = {}

    def cut(self, slot: int, length: int) -> None:
        """Forget what a slot holds beyond `length` positions, if it holds so many."""
        self.cache.cut(slot, min(length, self.cache.lengths[slot]))

    def consume(self, turns: Sequence[Turn], read: Read) -> list[Rows]:
        """Feed each slot, none of them twice, what it lacks.

        Returns what is read of each turn, in their order: a row for each row given.
        """
        begun = [turn for turn in turns if self.cache.lengths[turn.slot]]
        if not (self._graphs and begun and self._graphs.fit(begun)):
            return self._consume_eagerly(turns, read)
        self._count(begun)
        found = dict(zip(_slots(begun), self._graphs.run(begun, read), strict=True))
        fresh = [turn for turn in turns if turn.slot not in found]
        if fresh:
            found |= zip(_slots(fresh), self._consume_eagerly(fresh, read), strict=True)
        return [found[turn.slot] for turn in turns]

    def start_from(self, trunks: Sequence[Ids], slots: Sequence[int], ids: Sequence[Ids]) -> None:
        """Let empty slots begin with what their `ids` share with their trunks.

        A trunk is computed once; as many are kept as there are slots, those used last.
        """
        asked = dict(zip(trunks, slots, strict=True))
        new = {trunk: slot for trunk, slot in asked.items() if trunk not in self._trunks}
        if new:
            self._forward([Turn(slot, trunk, [()]) for trunk, slot in new.items()])
        copies = {trunk: self.cache.copy(slot) for trunk, slot in new.items()}
        for trunk in asked:
            self._trunks[trunk] = copies.get(trunk) or self._trunks.pop(trunk)
        for trunk, slot, row in zip(trunks, slots, ids, strict=True):
            self.cache.paste(slot, self._trunks[trunk], _shared(trunk, row))
        while len(self._trunks) > len(self.cache.lengths):
            self._trunks.pop(next(iter(self._trunks)))

    def _consume_eagerly(self, turns: Sequence[Turn], read: Read) -> list[Rows]:
        """Empty slots are prefilled in a forward of their own.

        Attention would pad the short steps of all others to a prompt's length, which costs more
        than a forward.
        """
        fresh = [n for n, turn in enumerate(turns) if not self.cache.lengths[turn.slot]]
        begun = [n for n, turn in enumerate(turns) if self.cache.lengths[turn.slot]]
        parts = [self._forward([turns[n] for n in group]) for group in (begun, fresh) if group]
        hidden_WH = parts[0]
        if len(parts) > 1:
            order = [n for n in begun + fresh for _ in turns[n].given]
            order_W = torch.tensor(order, device=self.model.device).argsort(stable=True)
            hidden_WH = torch.cat(parts)[order_W]
        given = list(chain.from_iterable(turn.given for turn in turns))
        rows = iter(read(hidden_WH, torch.tensor(given, device=self.model.device)).tolist())
        return [list(islice(rows, len(turn.given))) for turn in turns]

    def _forward(self, turns: Sequence[Turn]) -> Tensor:
        """hidden_WH of the last tokens of each turn."""
        news = [turn.ids[self.cache.lengths[turn.slot] :] for turn in turns]
        self._count(turns)
        wanted = [len(turn.given) for turn in turns]
        feed = self.cache.begin(_slots(turns), [len(new) for new in news], wanted)
        ids_M = torch.tensor(list(chain.from_iterable(news)), device=self.model.device)
        return self.model.consume(ids_M, feed, self.cache)

    def _count(self, turns: Sequence[Turn]) -> None:
        """Add a forward of these turns, about to run, to what the lane has done."""
        counts = [len(turn.ids) - self.cache.lengths[turn.slot] for turn in turns]
        assert min(counts) > 0, "nothing to consume"
        self.total.add(sum(counts), sum(len(turn.ids) for turn in turns))


def _slots(turns: Sequence[Turn]) -> list[int]:
    return [turn.slot for turn in turns]


def _shared(trunk: Ids, ids: Ids) -> int:
    """How many tokens both begin with; the last of `ids` is left to be consumed."""
    both = zip(trunk, ids[:-1], strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], both))
