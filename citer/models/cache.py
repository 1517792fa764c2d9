"""Keys and values of many answers in one allocation: a slot an answer, indexed, never moved."""

from typing import Any

import torch
from torch import Tensor
from transformers import Cache

from citer.models.pair import LanguageModel, kv_shape

GROWTH = 64  # positions; capacity grows by multiples of it


class SlotCache(Cache):
    """A cache of `slots` rows, each as long as its own answer.

    `begin` says which slots the coming forward reads and where each one's new tokens go; the
    model's layers then call `update`. Its verbs besides: `fork`, `cut`, `length`.
    """

    def __init__(self, model: LanguageModel, slots: int) -> None:
        super().__init__(layers=[])
        layers, heads, head_dim = kv_shape(model.network.config)
        # One position more than the capacity: the last one takes the padding's keys and values.
        shape = (layers, slots, heads, 1, head_dim)
        self.keys_LSHPD = torch.zeros(shape, dtype=model.dtype, device=model.device)
        self.values_LSHPD = torch.zeros(shape, dtype=model.dtype, device=model.device)
        self.lengths = [0] * slots

    @property
    def capacity(self) -> int:
        return self.keys_LSHPD.shape[3] - 1

    def begin(self, slots: list[int], counts: list[int]) -> tuple[Tensor, Tensor]:
        """Make ready for a forward of `counts[n]` new tokens in `slots[n]`.

        Returns positions_NT, and mask_N1TP: which positions each new token may attend to.
        """
        starts = [self.lengths[slot] for slot in slots]
        ends = [start + count for start, count in zip(starts, counts, strict=True)]
        self._grow(max(ends))
        device = self.keys_LSHPD.device
        start_N1, end_N1, slot_N = (
            torch.tensor(numbers, device=device) for numbers in (starts, ends, slots)
        )
        position_NT = start_N1[:, None] + torch.arange(max(counts), device=device)
        self.rows_N1 = slot_N[:, None]
        self.target_NT = position_NT.where(position_NT < end_N1[:, None], self.capacity)
        self.span = max(ends)
        # A slice where it can be one: reading it copies nothing.
        self.rows = slice(slots[0], slots[-1] + 1) if _consecutive(slots) else slot_N
        for slot, end in zip(slots, ends, strict=True):
            self.lengths[slot] = end
        mask_NTP = torch.arange(self.span, device=device) <= position_NT[:, :, None]
        return position_NT, mask_NTP[:, None]

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Store a layer's new keys and values (N, H, T, D); return all that its rows hold."""
        keys_SHPD, values_SHPD = self.keys_LSHPD[layer_idx], self.values_LSHPD[layer_idx]
        keys_SHPD[self.rows_N1, :, self.target_NT] = key_states.transpose(1, 2)
        values_SHPD[self.rows_N1, :, self.target_NT] = value_states.transpose(1, 2)
        return keys_SHPD[self.rows, :, : self.span], values_SHPD[self.rows, :, : self.span]

    def fork(self, source: int, target: int, length: int) -> None:
        """Give slot `target` the first `length` positions of slot `source`."""
        assert length <= self.lengths[source], "cannot fork more than the source holds"
        for cached in (self.keys_LSHPD, self.values_LSHPD):
            cached[:, target, :, :length] = cached[:, source, :, :length]
        self.lengths[target] = length

    def cut(self, slot: int, length: int) -> None:
        """Forget all that slot holds beyond `length` positions."""
        assert length <= self.lengths[slot], "cannot cut to more than the slot holds"
        self.lengths[slot] = length

    def _grow(self, needed: int) -> None:
        if needed <= self.capacity:
            return
        extra = -(-needed // GROWTH) * GROWTH - self.capacity
        pad = (0, 0, 0, extra)
        self.keys_LSHPD = torch.nn.functional.pad(self.keys_LSHPD, pad)
        self.values_LSHPD = torch.nn.functional.pad(self.values_LSHPD, pad)


def _consecutive(slots: list[int]) -> bool:
    return slots == list(range(slots[0], slots[0] + len(slots)))
