"""The model types: one record each, with what differs between their decoders.

The functions call transformers' modules in transformers' order. Embeddings, norms, MLPs and rotary
frequencies are the modules' own. `citer/models/forward.py` has what all types share.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from pydantic import BaseModel, PositiveInt
from torch import Tensor
from transformers import PreTrainedConfig

from citer.errors import InputError

ModelType = Literal[
    "llama", "mistral", "ministral", "qwen2", "qwen3", "smollm3", "gemma3_text", "phi3"
]

# Not "dynamic" and "longrope", whose angles depend on a batch's longest row.
ROPE_TYPES = ("default", "linear", "llama3", "yarn")
FULL, SLIDING = "full_attention", "sliding_attention"  # in `layer_types`

Rope = tuple[str, ...] | None
Heads = Callable[[Any, Tensor], tuple[Tensor, Tensor, Tensor]]
Rotate = Callable[[Tensor, Tensor, Tensor], Tensor]
Block = Callable[[Any, Callable[[Tensor], Tensor], Tensor], Tensor]


class LayerKind(NamedTuple):
    """Layers of one kind share rotary embedding and mask.

    rope: arguments of the rotary embedding after states and positions; None: no such embedding
    window: number of positions that a token attends to, its own included; None: all
    """

    rope: Rope
    window: int | None


def separate(module: Any, hidden_MH: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return query_MQD, key_MKD and value_MKD of three projections."""
    shape = (len(hidden_MH), -1, module.head_dim)
    return (
        module.q_proj(hidden_MH).view(shape),
        module.k_proj(hidden_MH).view(shape),
        module.v_proj(hidden_MH).view(shape),
    )


def normed(module: Any, hidden_MH: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Like `separate`, with a norm over each head's query and key."""
    query_MQD, key_MKD, value_MKD = separate(module, hidden_MH)
    return module.q_norm(query_MQD), module.k_norm(key_MKD), value_MKD


def fused(module: Any, hidden_MH: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return query_MQD, key_MKD and value_MKD of one projection, in this order."""
    states_MHD = module.qkv_proj(hidden_MH).view(len(hidden_MH), -1, module.head_dim)
    keys = module.num_key_value_heads
    query_MQD, key_MKD, value_MKD = states_MHD.split(
        (module.num_key_value_groups * keys, keys, keys), 1
    )
    return query_MQD, key_MKD, value_MKD


def rotate(cos_M1D: Tensor, sin_M1D: Tensor, states_MKD: Tensor) -> Tensor:
    """Rotary embedding (arXiv 2104.09864) of a head's halves. The first half's sine is negated."""
    turned_MKD = states_MKD.roll(states_MKD.shape[-1] // 2, -1)
    return states_MKD * cos_M1D + turned_MKD * sin_M1D


def rotate_part(cos_M1D: Tensor, sin_M1D: Tensor, states_MKD: Tensor) -> Tensor:
    """Rotate the first dimensions of a head, as many as there are cosines."""
    size = cos_M1D.shape[-1]
    rotated_MKD = rotate(cos_M1D, sin_M1D, states_MKD[..., :size])
    return torch.cat([rotated_MKD, states_MKD[..., size:]], -1)


def two_norms(layer: Any, attend: Callable[[Tensor], Tensor], hidden_MH: Tensor) -> Tensor:
    """Run a layer with a norm before attention and before the MLP."""
    hidden_MH = hidden_MH + attend(layer.input_layernorm(hidden_MH))
    return hidden_MH + layer.mlp(layer.post_attention_layernorm(hidden_MH))


def four_norms(layer: Any, attend: Callable[[Tensor], Tensor], hidden_MH: Tensor) -> Tensor:
    """Run a layer with a norm before and after attention and the MLP."""
    mixed_MH = attend(layer.input_layernorm(hidden_MH))
    hidden_MH = hidden_MH + layer.post_attention_layernorm(mixed_MH)
    mixed_MH = layer.mlp(layer.pre_feedforward_layernorm(hidden_MH))
    return hidden_MH + layer.post_feedforward_layernorm(mixed_MH)


def _some_ropes(config: PreTrainedConfig) -> list[Rope]:
    return [() if marked else None for marked in config.no_rope_layers[: config.num_hidden_layers]]


def _same_window(config: PreTrainedConfig) -> list[int | None]:
    return [getattr(config, "sliding_window", None)] * config.num_hidden_layers


def _window_by_type(config: PreTrainedConfig) -> list[int | None]:
    return [config.sliding_window if name == SLIDING else None for name in config.layer_types]


class Family(NamedTuple):
    """What a model type does differently from others.

    windows, ropes: one per layer, from the configuration
    heads: query, key and value of a layer
    rotate: how the rotary embedding is applied
    block: the order of norms, attention and MLP
    unset: settings that this forward does not follow
    """

    windows: Callable[[PreTrainedConfig], list[int | None]]
    ropes: Callable[[PreTrainedConfig], list[Rope]] = lambda config: [()] * config.num_hidden_layers
    heads: Heads = separate
    rotate: Rotate = rotate
    block: Block = two_norms
    unset: tuple[str, ...] = ()

    def kinds(self, config: PreTrainedConfig) -> list[LayerKind]:
        return list(map(LayerKind, self.ropes(config), self.windows(config)))


FAMILIES: dict[str, Family] = {
    "llama": Family(_same_window, unset=("sliding_window",)),
    "mistral": Family(_same_window),
    # AutoConfig makes it of a "mistral" whose config.json has `layer_types`, too.
    "ministral": Family(_window_by_type),
    "qwen2": Family(_window_by_type),
    "qwen3": Family(_window_by_type, heads=normed),
    "smollm3": Family(_window_by_type, ropes=_some_ropes),
    "gemma3_text": Family(
        _window_by_type,
        ropes=lambda config: [(name,) for name in config.layer_types],
        heads=normed,
        block=four_norms,
        unset=("attn_logit_softcapping", "final_logit_softcapping", "use_bidirectional_attention"),
    ),
    "phi3": Family(_same_window, heads=fused, rotate=rotate_part),
}


def check_settings(path: Path, config: PreTrainedConfig) -> None:
    """Raise InputError for the first setting of config.json that the forward does not follow."""
    file, family = path / "config.json", FAMILIES[config.model_type]
    for name in family.unset:
        if value := getattr(config, name, None):
            raise InputError(f"{file}: {name}: {value}: expected none")
    ropes = config.rope_parameters  # of all layers, or of each name in `layer_types`
    for rope in [ropes] if "rope_type" in ropes else filter(None, ropes.values()):
        if rope["rope_type"] not in ROPE_TYPES:
            raise InputError(f"{file}: rope_type: {_unlike(rope['rope_type'], *ROPE_TYPES)}")
    followed = [SLIDING if window else FULL for window in family.windows(config)]
    stated = getattr(config, "layer_types", None) or followed
    for layer, (name, other) in enumerate(zip(stated, followed, strict=True)):
        if name != other:
            raise InputError(f"{file}: layer_types.{layer}: {_unlike(name, other)}")


def _unlike(value: str, *expected: str) -> str:
    return f"{value!r}: expected {' or '.join(map(repr, expected))}"


class EosSetting(BaseModel):
    """The EOS ids, as config.json and generation_config.json store them."""

    eos_token_id: int | list[int] | None = None

    @property
    def eos_ids(self) -> tuple[int, ...]:
        setting = self.eos_token_id
        return tuple(setting if isinstance(setting, list) else [] if setting is None else [setting])


class Config(EosSetting):
    """Fields that citer needs or refuses. transformers would replace missing ones by defaults."""

    model_type: ModelType
    vocab_size: PositiveInt
    hidden_size: PositiveInt
    intermediate_size: PositiveInt
    num_hidden_layers: PositiveInt
    num_attention_heads: PositiveInt
    num_key_value_heads: PositiveInt | None = None
    max_position_embeddings: PositiveInt
    quantization_config: dict[str, Any] | None = None
