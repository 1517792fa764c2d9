"""The KV cache: one allocation with a slot per sequence. Slots are indexed, never moved."""

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import PreTrainedConfig, PreTrainedModel

from citer.models.batch import Batch, lay_out
from citer.models.families import FAMILIES

GROWTH = 64  # positions; capacity grows by multiples of it
Copied = tuple[Tensor, Tensor]  # keys_LKPD and values_LKPD of one slot


def kv_shape(config: PreTrainedConfig) -> tuple[int, int, int]:
    """Return the numbers of layers, of key-value heads and of dimensions per head."""
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return config.num_hidden_layers, config.num_key_value_heads, head_dim


class SlotCache:
    """A KV cache with `slots` slots of different lengths.

    `begin` lays out a forward. Its layers then call `update`. `copy`, `paste` and `cut` change
    what a slot holds between forwards. Layers with a sliding window keep all positions, too, so
    that a slot can be cut anywhere. `kinds` has the kind of each layer.
    """

    def __init__(
        self,
        network: PreTrainedModel,
        slots: int,
        layers: int | None = None,
        device: torch.device | None = None,
    ) -> None:
        """Allocate the slots. `layers`: the number of layers, if not all of the network's."""
        all_layers, heads, head_dim = kv_shape(network.config)
        shape = (layers or all_layers, slots, heads, 0, head_dim)
        device = device or network.device
        self.keys_LSKPD = torch.zeros(shape, dtype=network.dtype, device=device)
        self.values_LSKPD = torch.zeros_like(self.keys_LSKPD)
        self.kinds = FAMILIES[network.config.model_type].kinds(network.config)
        self.lengths = [0] * slots

    @property
    def capacity(self) -> int:
        return self.keys_LSKPD.shape[3]

    def begin(self, slots: list[int], counts: list[int], wanted: list[int]) -> Batch:
        """Prepare a forward of `counts[n]` new tokens in `slots[n]` (see `lay_out`)."""
        starts = [self.lengths[slot] for slot in slots]
        for slot, count in zip(slots, counts, strict=True):
            self.lengths[slot] += count
        batch = lay_out(slots, starts, counts, wanted, self.keys_LSKPD.device)
        self.reserve(batch.span)
        return batch

    def update(
        self, layer: int, batch: Batch, keys_MKD: Tensor, values_MKD: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Store a layer's new keys and values. Return those of all positions, (N, K, P, D) each."""
        keys_NKPD = _store(self.keys_LSKPD[layer], keys_MKD, batch)
        return keys_NKPD, _store(self.values_LSKPD[layer], values_MKD, batch)

    def copy(self, slot: int) -> Copied:
        """Copy a slot's keys and values."""
        keys_LKPD, values_LKPD = (kv[:, slot, :, : self.lengths[slot]] for kv in self._both)
        return keys_LKPD.clone(), values_LKPD.clone()

    def paste(self, slot: int, copied: Copied, length: int) -> None:
        """Replace a slot's content by the first `length` positions of a copy."""
        assert length <= copied[0].shape[2], "cannot paste more than was copied"
        self.cut(slot, 0)
        self.reserve(length)
        for kv, held in zip(self._both, copied, strict=True):
            kv[:, slot, :, :length] = held[:, :, :length]
        self.lengths[slot] = length

    def cut(self, slot: int, length: int) -> None:
        """Truncate a slot to `length` positions, and set the rest to zero.

        Otherwise an overflowed value would reach later answers: attention gives it weight 0, but
        0 · ∞ is NaN.
        """
        assert length <= self.lengths[slot], "cannot cut to more than the slot holds"
        held = self.lengths[slot]
        if length < held:
            for kv in self._both:
                kv[:, slot, :, length:held] = 0
            self.lengths[slot] = length

    def reserve(self, needed: int) -> None:
        """Grow the cache to at least `needed` positions per slot."""
        if needed <= self.capacity:
            return
        extra = -(-needed // GROWTH) * GROWTH - self.capacity
        self.keys_LSKPD = pad(self.keys_LSKPD, (0, 0, 0, extra))
        self.values_LSKPD = pad(self.values_LSKPD, (0, 0, 0, extra))

    @property
    def _both(self) -> tuple[Tensor, Tensor]:
        return self.keys_LSKPD, self.values_LSKPD


def _store(all_SKPD: Tensor, new_MKD: Tensor, batch: Batch) -> Tensor:
    all_SKPD[batch.slot_M, :, batch.position_M] = new_MKD
    held_SKPD = all_SKPD[:, :, : batch.span]
    if isinstance(batch.rows, slice):
        return held_SKPD[batch.rows]
    return held_SKPD.index_select(0, batch.rows)  # several times faster than indexing by a tensor
