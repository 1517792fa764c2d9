"""The layout of a forward, and the KV cache.

The new tokens of many sequences lie end to end, without padding. The cache is one allocation with a
slot per sequence. Slots are indexed, never moved.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate, chain
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import PreTrainedConfig, PreTrainedModel

from citer.models.device import device_of
from citer.models.families import FAMILIES

# Maps hidden_WH and the rows' given_WK and noise_R6 to out_WC in float64. On a GPU it is captured
# with the forward. It must therefore neither read its tensors on the host nor create tensors there.
Read = Callable[[Tensor, Tensor, Tensor], Tensor]
GROWTH = 64  # positions; capacity grows by multiples of it
Copied = list[Tensor]  # keys and values of one slot on each device: part_2LKPD


class Row(NamedTuple):
    """The tokens that one slot adds to a forward: the part of `ids` that the slot lacks.

    A `Read` gets the states after the last `len(given)` tokens, and with each a row of `given`, K
    integers. If the row samples, `noise` has `Sampling.numbers` for each state.
    """

    slot: int
    ids: Sequence[int]
    given: Sequence[Sequence[int]]
    noise: Sequence[Sequence[int]] = ()


class Batch(NamedTuple):
    """M new tokens of N rows, which are sequences. A row has at most T of them.

    With its new tokens, the longest row has P positions. Only attention needs rows padded to
    (N, T), each with its last token. `padded_NT` maps to that layout and `flat_M` maps back. Both
    are None if all rows have `width` tokens. `wanted_W`: the tokens whose states are returned.
    """

    rows: slice | Tensor  # the rows' slots
    span: int  # P
    fresh: bool  # no row has earlier positions
    slot_M: Tensor
    position_M: Tensor
    width: int = 1
    wanted_W: Tensor | None = None  # None: all
    padded_NT: Tensor | None = None
    flat_M: Tensor | None = None
    # Positions up to each token's own. None: all, or if `fresh`, all before it.
    mask_NTP: Tensor | None = None

    def side_by_side(self, tokens_M: Tensor) -> Tensor:
        """Pad the rows for attention: (M, ...) → (N, T, ...)."""
        if self.padded_NT is None:
            return tokens_M.unflatten(0, (-1, self.width))
        return tokens_M[self.padded_NT]

    def end_to_end(self, tokens_NT: Tensor) -> Tensor:
        """Remove the padding: (N, T, ...) → (M, ...)."""
        flat = tokens_NT.flatten(0, 1)
        return flat if self.flat_M is None else flat[self.flat_M]

    def masked(self) -> "Batch":
        """Add `mask_NTP`."""
        position_NT = self.side_by_side(self.position_M)
        position_P = torch.arange(self.span, device=position_NT.device)
        return self._replace(mask_NTP=position_P <= position_NT[:, :, None])

    def visible(self, window: int | None) -> Tensor | None:
        """Return visible_NTP, the positions that a token attends to; None as for `mask_NTP`.

        With a sliding window these are the last `window` ones, the token's own included.
        """
        if window is None or self.span <= window:
            return self.mask_NTP
        position_NT = self.side_by_side(self.position_M)
        position_P = torch.arange(self.span, device=position_NT.device)
        age_NTP = position_NT[:, :, None] - position_P
        return (age_NTP >= 0) & (age_NTP < window)

    def wanted(self, tokens_M: Tensor) -> Tensor:
        """Select the tokens whose states are returned: (M, ...) → (W, ...)."""
        return tokens_M if self.wanted_W is None else tokens_M[self.wanted_W]


def lay_out(
    slots: list[int], starts: list[int], counts: list[int], wanted: list[int], device: torch.device
) -> Batch:
    """Lay out `counts[n]` new tokens after the `starts[n]` of `slots[n]`; `wanted[n]` are read."""
    span = max(start + count for start, count in zip(starts, counts, strict=True))
    slot_N, start_N, count_N = torch.tensor([slots, starts, counts], device=device)
    # A slice, if possible: reading it needs no copy.
    consecutive = slots == list(range(slots[0], slots[0] + len(slots)))
    rows = slice(slots[0], slots[-1] + 1) if consecutive else slot_N
    batch = Batch(rows, span, not any(starts), slot_N, start_N)
    if max(counts) > 1:
        batch = _uneven(batch, start_N, count_N, max(counts), sum(counts))
        ends = accumulate(counts)
        places = chain.from_iterable(range(e - n, e) for e, n in zip(ends, wanted, strict=True))
        batch = batch._replace(wanted_W=torch.tensor(list(places), device=device))
    even = max(counts) == 1 and min(starts) == max(starts)
    return batch if even or batch.fresh else batch.masked()


def _uneven(batch: Batch, start_N: Tensor, count_N: Tensor, width: int, total: int) -> Batch:
    first_N = count_N.cumsum(0) - count_N
    row_M = torch.repeat_interleave(count_N, output_size=total)
    column_M = torch.arange(total, device=row_M.device) - first_N[row_M]
    column_T = torch.arange(width, device=row_M.device)
    return batch._replace(
        slot_M=batch.slot_M[row_M],
        position_M=start_N[row_M] + column_M,
        padded_NT=first_N[:, None] + torch.minimum(column_T, count_N[:, None] - 1),
        flat_M=row_M * width + column_M,
    )


def kv_shape(config: PreTrainedConfig) -> tuple[int, int, int]:
    """Return the numbers of layers, of key-value heads and of dimensions per head."""
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return config.num_hidden_layers, config.num_key_value_heads, head_dim


class SlotCache:
    """A KV cache with `slots` slots of different lengths. `kinds` has the kind of each layer.

    `begin` lays out a forward. Its layers then call `update`. Layers with a sliding window keep all
    positions, too, so that a slot can be cut anywhere. Each layer's part is on the layer's device.
    """

    def __init__(self, network: PreTrainedModel, slots: int) -> None:
        model: Any = network.base_model
        _, heads, head_dim = kv_shape(network.config)
        devices = list(map(device_of, model.layers))
        empty = partial(torch.zeros, dtype=network.dtype)
        self.parts_2LSKPD = {
            device: empty((2, layers, slots, heads, 0, head_dim), device=device)
            for device, layers in Counter(devices).items()
        }
        # The device of each layer, and the layer's number there.
        self._places = [(place, devices[:n].count(place)) for n, place in enumerate(devices)]
        self._batches: dict[torch.device, Batch] = {}
        self.kinds = FAMILIES[network.config.model_type].kinds(network.config)
        self.lengths = [0] * slots

    @property
    def capacity(self) -> int:
        return next(iter(self.parts_2LSKPD.values())).shape[4]

    def begin(self, slots: list[int], counts: list[int], wanted: list[int]) -> Batch:
        """Prepare a forward of `counts[n]` new tokens in `slots[n]` (see `lay_out`).

        Returns the batch on the device of the last layer.
        """
        starts = [self.lengths[slot] for slot in slots]
        self._batches = {
            device: lay_out(slots, starts, counts, wanted, device) for device in self.parts_2LSKPD
        }
        batch = self._batches[self._places[-1][0]]
        self.reserve(batch.span)
        for slot, count in zip(slots, counts, strict=True):
            self.lengths[slot] += count
        return batch

    def store(
        self, layer: int, batch: Batch, keys_MKD: Tensor, values_MKD: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Store a layer's new keys and values. Return those of all positions, (N, K, P, D) each."""
        device, index = self._places[layer]
        keys_SKPD, values_SKPD = self.parts_2LSKPD[device][:, index]
        return _store(keys_SKPD, keys_MKD, batch), _store(values_SKPD, values_MKD, batch)

    def update(self, keys_NKTD: Tensor, values_NKTD: Tensor, layer: int) -> tuple[Tensor, Tensor]:
        """Do the same for the attention of transformers, after `begin`."""
        batch = self._batches[self._places[layer][0]]
        new = (batch.end_to_end(kv.transpose(1, 2)) for kv in (keys_NKTD, values_NKTD))
        return self.store(layer, batch, *new)

    def copy(self, slot: int) -> Copied:
        parts = self.parts_2LSKPD.values()
        return [part[:, :, slot, :, : self.lengths[slot]].clone() for part in parts]

    def paste(self, slot: int, copied: Copied, length: int) -> None:
        """Replace a slot's content by the first `length` positions of a copy."""
        assert length <= copied[0].shape[3], "cannot paste more than was copied"
        self.cut(slot, 0)
        self.reserve(length)
        for part, held in zip(self.parts_2LSKPD.values(), copied, strict=True):
            part[:, :, slot, :, :length] = held[:, :, :, :length]
        self.lengths[slot] = length

    def cut(self, slot: int, length: int) -> None:
        """Truncate a slot to `length` positions.

        The rest is zero: an overflowed value would reach later answers, since 0 · ∞ is NaN.
        """
        assert length <= self.lengths[slot], "cannot cut to more than the slot holds"
        held = self.lengths[slot]
        if length < held:
            for part in self.parts_2LSKPD.values():
                part[:, :, slot, :, length:held] = 0
            self.lengths[slot] = length

    def reserve(self, needed: int) -> None:
        """Grow the cache to at least `needed` positions per slot. It stays if memory runs out."""
        if needed <= self.capacity:
            return
        extra = -(-needed // GROWTH) * GROWTH - self.capacity
        parts = self.parts_2LSKPD.items()
        self.parts_2LSKPD = {device: pad(part, (0, 0, 0, extra)) for device, part in parts}


def _store(all_SKPD: Tensor, new_MKD: Tensor, batch: Batch) -> Tensor:
    all_SKPD[batch.slot_M, :, batch.position_M] = new_MKD
    held_SKPD = all_SKPD[:, :, : batch.span]
    if isinstance(batch.rows, slice):
        return held_SKPD[batch.rows]
    return held_SKPD.index_select(0, batch.rows)  # several times faster than indexing by a tensor
