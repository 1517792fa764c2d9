"""One forward for the new tokens of many rows: transformers' modules in transformers' order.

The forward of transformers pads every row to the longest, copies keys and values for every query
head, and spends more time in Python than a small model spends computing. Here only attention uses
a padded layout. `check_forward` compares the result with that of the installed version.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import PreTrainedModel

from citer.errors import InputError
from citer.models.cache import Batch, SlotCache
from citer.models.device import device_of
from citer.models.families import FAMILIES, Family, Heads, LayerKind
from citer.models.rounding import Int8Linear, deviation

TESTED = "5.23.0"  # of transformers
# The largest accepted deviation of states. On a CPU, 28 layers deviate by up to 8e-6 in float32
# and 3e-3 in float16. The value for float32 allows GPU kernels that round products to TF32.
TOLERANCE = {torch.float64: 1e-8, torch.float32: 5e-3, torch.float16: 3e-2, torch.bfloat16: 1e-1}
QUANTISED = 1e-1  # of a quantised network, which may round the states in every layer
Forward = Callable[..., Tensor]  # from network, ids_M, batch and cache to hidden_WH
BEGUN, ADDED = 3, 2  # tokens of a prompt and of a catch-up that `check_forward` reads


def wanted_hidden(
    network: PreTrainedModel, ids_M: Tensor, batch: Batch, cache: SlotCache
) -> Tensor:
    """Run a forward. Return hidden_WH, the states of the wanted tokens after the final norm."""
    model: Any = network.base_model
    family = FAMILIES[network.config.model_type]
    hidden_MH = model.embed_tokens(ids_M)
    shared = {
        kind: _shared(model, kind, family, hidden_MH, batch, cache) for kind in set(cache.kinds)
    }
    for index, (layer, kind) in enumerate(zip(model.layers, cache.kinds, strict=True)):
        attend = partial(_attention, layer.self_attn, shared[kind], index)
        hidden_MH = family.block(layer, attend, hidden_MH)
    return model.norm(batch.wanted(hidden_MH))


@torch.inference_mode()
def check_forward(network: PreTrainedModel, origin: Path, forward: Forward) -> None:
    """Raise InputError if a forward and that of transformers differ on a few tokens."""
    step = network.config.vocab_size // (BEGUN + ADDED)
    device = device_of(network.get_input_embeddings())
    ids_M = torch.arange(BEGUN + ADDED, device=device) * step
    theirs_MH = network.base_model(input_ids=ids_M[None], use_cache=False).last_hidden_state[0]
    if not theirs_MH.isfinite().all():
        dtype = str(network.dtype).removeprefix("torch.")
        raise InputError(f"{origin}: states are not finite in {dtype}, expected finite ones")
    cache = SlotCache(network, 1)
    parts = [
        forward(network, part_M, cache.begin([0], [len(part_M)], [len(part_M)]), cache)
        for part_M in (ids_M[:BEGUN], ids_M[BEGUN:])
    ]
    rounded = any(isinstance(layer, Int8Linear) for layer in network.modules())
    rounds = rounded or getattr(network, "is_quantized", False)
    tolerance = QUANTISED if rounds else TOLERANCE[network.dtype]
    if not deviation(torch.cat(parts), theirs_MH) <= tolerance:
        raise InputError(
            f"{origin}: transformers {transformers.__version__} computes other states than with "
            f"our cache: expected version {TESTED}, or a supported model"
        )


class _Shared(NamedTuple):
    """What layers of one kind share. G counts the queries of a key-value head over all T tokens."""

    heads: Heads
    rotate: Callable[[Tensor], Tensor]
    mask_N1GP: Tensor | None
    batch: Batch
    cache: SlotCache


def _shared(
    model: Any, kind: LayerKind, family: Family, hidden_MH: Tensor, batch: Batch, cache: SlotCache
) -> _Shared:
    mask_N1GP = _mask(model, batch.visible(kind.window), hidden_MH.dtype)
    if kind.rope is None:
        return _Shared(family.heads, lambda states_MKD: states_MKD, mask_N1GP, batch, cache)
    cos_MD, sin_MD = model.rotary_emb(hidden_MH, batch.position_M, *kind.rope)
    first, second = sin_MD.chunk(2, -1)
    negated_MD = torch.cat([-first, second], -1)
    turn = partial(family.rotate, cos_MD[:, None], negated_MD[:, None])
    return _Shared(family.heads, turn, mask_N1GP, batch, cache)


def _attention(module: Any, shared: _Shared, layer: int, hidden_MH: Tensor) -> Tensor:
    batch, mask_N1GP = shared.batch, shared.mask_N1GP
    query_MQD, key_MKD, value_MKD = shared.heads(module, hidden_MH)
    key_MKD, query_MQD = shared.rotate(key_MKD), shared.rotate(query_MQD)
    keys_NKPD, values_NKPD = shared.cache.store(layer, batch, key_MKD, value_MKD)
    query_NTQD = batch.side_by_side(query_MQD)
    if batch.fresh and mask_N1GP is None:
        mixed_NTQD = scaled_dot_product_attention(
            query_NTQD.transpose(1, 2),
            keys_NKPD,
            values_NKPD,
            is_causal=True,  # no row has earlier positions, so no mask is needed
            scale=module.scaling,
            enable_gqa=True,
        ).transpose(1, 2)
    else:
        mixed_NTQD = _attend(query_NTQD, keys_NKPD, values_NKPD, mask_N1GP, module.scaling)
    return module.o_proj(batch.end_to_end(mixed_NTQD).flatten(1))


def _mask(model: Any, visible_NTP: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """Return an additive mask. Attention would convert a boolean mask again in every layer."""
    if visible_NTP is None:
        return None
    group = model.layers[0].self_attn.num_key_value_groups
    mask_NTP = torch.where(visible_NTP, 0.0, -torch.inf).to(dtype)
    return mask_NTP.repeat_interleave(group, 1)[:, None]


def _attend(
    query_NTQD: Tensor,
    keys_NKPD: Tensor,
    values_NKPD: Tensor,
    mask_N1GP: Tensor | None,
    scale: float,
) -> Tensor:
    """Return mixed_NTQD. Query heads that share a key are treated as tokens: no key is repeated."""
    tokens, heads = query_NTQD.shape[1], keys_NKPD.shape[1]
    query_NKGD = query_NTQD.unflatten(2, (heads, -1)).transpose(1, 2).flatten(2, 3)
    group = query_NKGD.shape[2] // tokens
    mixed_NKGD = scaled_dot_product_attention(
        query_NKGD, keys_NKPD, values_NKPD, attn_mask=mask_N1GP, scale=scale
    )
    return mixed_NKGD.unflatten(2, (tokens, group)).transpose(1, 2).flatten(2, 3)
