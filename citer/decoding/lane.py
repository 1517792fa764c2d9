"""One model at work on many answers: it consumes what it has not yet seen of each."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

import torch
from torch import Tensor

from citer.models.cache import SlotCache
from citer.models.pair import LanguageModel

TRUNKS = 8  # shared prefixes held at a time


@dataclass
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
    """A model with a cache slot for each answer, and slots for trunks that answers share.

    One verb does prefill, step and catch-up: `consume` feeds each slot the tokens that it lacks.
    """

    def __init__(self, model: LanguageModel, slots: int) -> None:
        self.model = model
        self.cache = SlotCache(model, slots + TRUNKS)
        self.total = Work()
        self._trunks: dict[tuple[int, ...], int] = {}
        self._trunk_slots = range(slots, slots + TRUNKS)

    def cut(self, slot: int, length: int) -> None:
        """Forget what a slot holds beyond `length` positions, if it holds so many."""
        self.cache.cut(slot, min(length, self.cache.lengths[slot]))

    def consume(self, slots: Sequence[int], ids: Sequence[list[int]]) -> Tensor:
        """Feed each slot what it lacks of its `ids`; return hidden_NH after each one's last.

        Empty slots are prefilled in a forward of their own: padding the short steps of all
        others to a prompt's length would cost more than a forward.
        """
        fresh = [n for n, slot in enumerate(slots) if not self.cache.lengths[slot]]
        begun = [n for n, slot in enumerate(slots) if self.cache.lengths[slot]]
        parts = [
            self._forward([slots[n] for n in group], [ids[n] for n in group])
            for group in (begun, fresh)
            if group
        ]
        if len(parts) == 1:
            return parts[0]
        order = torch.tensor(begun + fresh, device=self.model.device).argsort()
        return torch.cat(parts)[order]

    def start_from(self, trunk: tuple[int, ...], slot: int, ids: list[int]) -> None:
        """Let an empty slot begin with what `ids` share with `trunk`, computed once for all."""
        source = self._trunk_slot(trunk)
        shared = takewhile(lambda both: both[0] == both[1], zip(trunk, ids[:-1], strict=False))
        self.cache.fork(source, slot, sum(1 for _ in shared))

    def _trunk_slot(self, trunk: tuple[int, ...]) -> int:
        if trunk not in self._trunks:
            if len(self._trunks) < TRUNKS:
                slot = self._trunk_slots[len(self._trunks)]
            else:
                slot = self._trunks.pop(next(iter(self._trunks)))
            self.cut(slot, 0)
            self._forward([slot], [list(trunk)])
            self._trunks[trunk] = slot
        return self._trunks[trunk]

    def _forward(self, slots: list[int], ids: list[list[int]]) -> Tensor:
        lengths = [self.cache.lengths[slot] for slot in slots]
        news = [row[length:] for row, length in zip(ids, lengths, strict=True)]
        counts = [len(new) for new in news]
        assert min(counts) > 0, "nothing to consume"
        position_NT, mask_N1TP = self.cache.begin(slots, counts)
        hidden_NTH = self.model.last_hidden(
            input_ids=self._padded(news),
            attention_mask=mask_N1TP,
            position_ids=position_NT,
            past_key_values=self.cache,
            use_cache=True,
        )
        self.total.add(sum(counts), sum(self.cache.lengths[slot] for slot in slots))
        last_N = torch.tensor(counts, device=hidden_NTH.device) - 1
        return hidden_NTH[torch.arange(len(slots), device=hidden_NTH.device), last_N]

    def _padded(self, rows: list[list[int]]) -> Tensor:
        width = max(map(len, rows))
        padded = [row + [0] * (width - len(row)) for row in rows]
        return torch.tensor(padded, device=self.model.device)
