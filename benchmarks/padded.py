"""Pad a pair with zeros to the shapes of larger models, which compute the same function.

    python -m benchmarks.padded data/models/slm data/pair/llm data/routers/2 FOLDER

A padded pair takes the time of real models of its size. It writes the small pair's answers, so that
routing, drafts and audits do what they do on the small pair. Only rounding differs.

- New dimensions of the states are 0, and so are the new heads and layers. A norm divides by the
  root of a mean over more dimensions, so its weights shrink by the root of the ratio.
- The rotary frequencies of a head with d dimensions are those at each F-th place of one with F d,
  so pair i of a narrow head becomes pair F i. Queries grow by √F, because attention divides by the
  root of the width.
- New ids of the vocabulary have the lowest logits: the last dimension, if it is new, holds a
  constant, which only the LM head reads.

The model is stored as Llama, whose configuration has a head size of its own.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from shutil import copytree
from typing import NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from benchmarks.report import command
from citer.errors import InputError
from citer.models.bundle import read_bundle, read_card, write_bundle
from citer.models.folder import PairFolder
from citer.models.router import EXTRAS, Head, Router, RouterMLP
from citer.storage.tables import read_json, write_json

CONSTANT = 2**-10  # far below the states, whose norm it must not change
LOWEST = -1e8


class Shape(NamedTuple):
    """The shape of a decoder, by the fields of its configuration."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int

    @classmethod
    def of(cls, folder: Path) -> "Shape":
        config = read_json(folder / "config.json")
        width = config["hidden_size"] // config["num_attention_heads"]
        config["head_dim"] = config.get("head_dim") or width
        return cls._make(config[name] for name in cls._fields)

    @property
    def group(self) -> int:
        """Query heads per key-value head."""
        return self.num_attention_heads // self.num_key_value_heads

    def fits(self, other: "Shape") -> bool:
        """Return whether a model of this shape can be padded to the other one."""
        smaller = all(own <= size for own, size in zip(self, other, strict=True))
        return smaller and self.group <= other.group and other.head_dim % self.head_dim == 0


Pair = tuple[Shape, Shape]  # of SLM and LLM
LLAMA: Pair = (  # Llama 3.2 1B and Llama 3.1 8B
    Shape(128_256, 2_048, 8_192, 16, 32, 8, 64),
    Shape(128_256, 4_096, 14_336, 32, 32, 8, 128),
)


def pad(source: Path, target: Path, shape: Shape, dtype: torch.dtype = torch.float32) -> None:
    """Write a copy of a Qwen2 folder with tied embeddings, padded to a shape.

    Raises InputError for another model, and for one that does not fit the shape.
    """
    own, config = Shape.of(source), read_json(source / "config.json")
    known = config["model_type"] == "qwen2" and config.get("tie_word_embeddings")
    if not (known and own.fits(shape)):
        expected = f"expected a Qwen2 model with tied embeddings, not larger than {shape}"
        raise InputError(f"{source}: {expected}")
    copytree(source, target, dirs_exist_ok=True)
    padded = dict(Padding(own, shape, dtype).weights(load_file(source / "model.safetensors")))
    save_file(padded, target / "model.safetensors", {"format": "pt"})
    llama = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": True}
    other = {
        "dtype": str(dtype).removeprefix("torch."),
        "rms_norm_eps": config["rms_norm_eps"] * own.hidden_size / shape.hidden_size,
        "layer_types": ["full_attention"] * shape.num_hidden_layers,
    }
    write_json(target / "config.json", config | llama | other | shape._asdict())


class Padding(NamedTuple):
    """How weights of one shape become those of another."""

    own: Shape
    shape: Shape
    dtype: torch.dtype

    def weights(self, weights: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        """Yield all weights by their names. The new layers add nothing to the states."""
        yield "model.embed_tokens.weight", self._embedding(weights["model.embed_tokens.weight"])
        final_H = self._norm(weights["model.norm.weight"])
        final_H[-1] = 1 if self._has_constant else final_H[-1]
        yield "model.norm.weight", final_H
        layers = range(self.shape.num_hidden_layers)
        for number, (name, size) in product(layers, self._sizes().items()):
            full = f"model.layers.{number}.{name}"
            known = full in weights
            yield full, self._padded(name, weights[full], size) if known else self._zeros(size)

    @property
    def _has_constant(self) -> bool:
        return self.shape.hidden_size > self.own.hidden_size

    def _sizes(self) -> dict[str, tuple[int, ...]]:
        """Return the size of each weight of a layer, as Llama has it."""
        hidden, inner = self.shape.hidden_size, self.shape.intermediate_size
        queries = self.shape.num_attention_heads * self.shape.head_dim
        keys = queries // self.shape.group
        attention = {"q_proj": queries, "k_proj": keys, "v_proj": keys}
        return {
            **{f"self_attn.{name}.weight": (size, hidden) for name, size in attention.items()},
            **{f"self_attn.{name}.bias": (size,) for name, size in attention.items()},
            "self_attn.o_proj.weight": (hidden, queries),
            "self_attn.o_proj.bias": (hidden,),
            "mlp.gate_proj.weight": (inner, hidden),
            "mlp.up_proj.weight": (inner, hidden),
            "mlp.down_proj.weight": (hidden, inner),
            "input_layernorm.weight": (hidden,),
            "post_attention_layernorm.weight": (hidden,),
        }

    def _padded(self, name: str, weight: Tensor, size: tuple[int, ...]) -> Tensor:
        kind, group = name.split(".")[-2], self.shape.group
        if kind == "o_proj":
            return self._corner(self._heads(weight.T, group).T, size)
        if kind == "q_proj":
            factor = math.sqrt(self.shape.head_dim / self.own.head_dim)
            return self._corner(self._heads(weight, group) * factor, size)
        if kind in ("k_proj", "v_proj"):
            return self._corner(self._heads(weight, 1), size)
        return self._norm(weight) if kind.endswith("norm") else self._corner(weight, size)

    def _zeros(self, size: tuple[int, ...]) -> Tensor:
        return torch.zeros(size, dtype=self.dtype)

    def _corner(self, weight: Tensor, size: tuple[int, ...]) -> Tensor:
        """Return zeros of this size, with `weight` at the lowest indices."""
        padded = self._zeros(size)
        padded[tuple(map(slice, weight.shape))] = weight
        return padded

    def _heads(self, weight: Tensor, group: int) -> Tensor:
        """Put each head's rows at their places among wider heads, `group` to a key-value head."""
        own, shape = self.own, self.shape
        heads = weight.unflatten(0, (own.num_key_value_heads, -1, own.head_dim))
        wide = torch.zeros(shape.num_key_value_heads, group, shape.head_dim, *heads.shape[3:])
        wide[: own.num_key_value_heads, : heads.shape[1], :: shape.head_dim // own.head_dim] = heads
        return wide.flatten(0, 2)

    def _norm(self, weight_H: Tensor) -> Tensor:
        factor = math.sqrt(self.own.hidden_size / self.shape.hidden_size)
        return self._corner(weight_H * factor, (self.shape.hidden_size,))

    def _embedding(self, weight_VH: Tensor) -> Tensor:
        padded = self._corner(weight_VH, (self.shape.vocab_size, self.shape.hidden_size))
        if self._has_constant:
            padded[: len(weight_VH), -1] = CONSTANT
            padded[len(weight_VH) :, -1] = LOWEST
        return padded


def pad_router(router: Router, hidden: int) -> Router:
    """Return a router whose heads ignore the new dimensions of a hidden state of this size."""
    return Router({name: _pad_head(head, hidden) for name, head in router.heads.items()})


def _pad_head(head: Head, hidden: int) -> Head:
    if not head.mlp or head.mlp.inputs <= EXTRAS:
        return head
    mlp = RouterMLP(head.mlp.hidden_size, head.mlp.dropout, hidden + EXTRAS)
    weights = head.mlp.state_dict()
    states, extras = weights["layers.0.weight"].tensor_split([head.mlp.inputs - EXTRAS], 1)
    new = states.new_zeros(len(states), hidden - states.shape[1])
    mlp.load_state_dict(weights | {"layers.0.weight": torch.cat([states, new, extras], 1)})
    return replace(head, mlp=mlp.eval().requires_grad_(False))


def pad_pair(pair: PairFolder, bundle: Path, target: Path, shapes: Pair, dtype: str) -> PairFolder:
    """Write the folders `slm`, `llm` and `router` in TARGET, and return the pair."""
    folders = target / "slm", target / "llm"
    for source, folder, shape in zip((pair.slm, pair.llm), folders, shapes, strict=True):
        pad(source.path, folder, shape, getattr(torch, dtype))
    router, card = read_bundle(bundle)
    padded = PairFolder(*folders, read_card(bundle).prompts)
    heads = pad_router(router, shapes[0].hidden_size)
    write_bundle(target / "router", heads, card | padded.identity(dtype))
    return padded


def main(slm: Path, llm: Path, router: Path, target: Path) -> None:
    """Write a pair and its router below TARGET, in bfloat16 and in the shapes of `LLAMA`."""
    pad_pair(PairFolder(slm, llm), router, target, LLAMA, "bfloat16")


if __name__ == "__main__":
    command(main)
