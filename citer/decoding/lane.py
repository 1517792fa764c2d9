"""One model at work on many answers: it consumes what it has not yet seen of each."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, takewhile

import torch
from torch import Tensor

from citer.models.cache import Copied, SlotCache
from citer.models.pair import LanguageModel

Ids = Sequence[int]


@dataclass(slots=True)
class Work:
    """Forwards run; positions computed (and written to the cache); positions attended to."""

    forwards: int = 0
    positions: int = 0
    kv_read: int = 0

    def add(self, positions: int, kv_read: int) -> None:
        self.forwards += 1
        self.positions += positions
        self.kv_read += kv_read


class Lane:
    """A model with a cache slot for each answer, and copies of the trunks that answers share.

    One verb does prefill, step and catch-up: `consume` feeds each slot the tokens that it lacks.
    """

    def __init__(self, model: LanguageModel, slots: int) -> None:
        self.model = model
        self.cache = SlotCache(model.network, slots)
        self.total = Work()
        self._trunks: dict[Ids, Copied] = {}

    def cut(self, slot: int, length: int) -> None:
        """Forget what a slot holds beyond `length` positions, if it holds so many."""
        self.cache.cut(slot, min(length, self.cache.lengths[slot]))

    def consume(self, slots: Sequence[int], ids: Sequence[Ids], wanted: Sequence[int]) -> Tensor:
        """Feed each slot what it lacks of its `ids`; hidden_MH after each one's last `wanted`.

        Empty slots are prefilled in a forward of their own: attention would pad the short steps
        of all others to a prompt's length, which costs more than a forward.
        """
        fresh = [n for n, slot in enumerate(slots) if not self.cache.lengths[slot]]
        begun = [n for n, slot in enumerate(slots) if self.cache.lengths[slot]]
        parts = [
            self._forward([slots[n] for n in group], [ids[n] for n in group], counts)
            for group in (begun, fresh)
            if (counts := [wanted[n] for n in group])
        ]
        if len(parts) == 1:
            return parts[0]
        order = [n for n in begun + fresh for _ in range(wanted[n])]
        order_M = torch.tensor(order, device=self.model.device).argsort(stable=True)
        return torch.cat(parts)[order_M]

    def start_from(self, trunks: Sequence[Ids], slots: Sequence[int], ids: Sequence[Ids]) -> None:
        """Let empty slots begin with what their `ids` share with their trunks.

        A trunk is computed once; as many are kept as there are slots, those used last.
        """
        asked = dict(zip(trunks, slots, strict=True))
        new = {trunk: slot for trunk, slot in asked.items() if trunk not in self._trunks}
        if new:
            self._forward(list(new.values()), list(new), [1] * len(new))
        copies = {trunk: self.cache.copy(slot) for trunk, slot in new.items()}
        for trunk in asked:
            self._trunks[trunk] = copies.get(trunk) or self._trunks.pop(trunk)
        for trunk, slot, row in zip(trunks, slots, ids, strict=True):
            self.cache.paste(slot, self._trunks[trunk], _shared(trunk, row))
        while len(self._trunks) > len(self.cache.lengths):
            self._trunks.pop(next(iter(self._trunks)))

    def _forward(self, slots: list[int], ids: list[Ids], wanted: list[int]) -> Tensor:
        """hidden_MH after the last `wanted[n]` of each slot's `ids`."""
        news = [row[self.cache.lengths[slot] :] for slot, row in zip(slots, ids, strict=True)]
        counts = [len(new) for new in news]
        assert min(counts) > 0, "nothing to consume"
        feed = self.cache.begin(slots, counts, wanted)
        self.total.add(sum(counts), sum(self.cache.lengths[slot] for slot in slots))
        ids_M = torch.tensor(list(chain.from_iterable(news)), device=self.model.device)
        return self.model.consume(ids_M, feed, self.cache)


def _shared(trunk: Ids, ids: Ids) -> int:
    """How many tokens both begin with; the last of `ids` is left to be consumed."""
    both = zip(trunk, ids[:-1], strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], both))
