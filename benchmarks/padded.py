"""Widen the heads of a Qwen2 model, because vLLM's attention on CPUs has no heads below 32.

The wide model computes the same function. New dimensions of queries, keys and values are 0. The
rotary frequencies of a head with d dimensions are those at the even places of one with 2 d, so
pair i of a narrow head becomes pair 2 i. Queries grow by √2, because attention divides by the root
of the width. The model is stored as Llama, whose configuration has a head size of its own.
"""

import math
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from citer.storage.tables import read_json, write_json

FACTOR = 2


def widen(source: Path, target: Path) -> None:
    """Write a model folder, without tokenizer, with heads `FACTOR` times as wide."""
    config = read_json(source / "config.json")
    heads = config["num_attention_heads"]
    width = config["hidden_size"] // heads
    weights = load_file(source / "model.safetensors")
    changed = {name: _wide(name, weight, width) for name, weight in weights.items()}
    changed |= {
        name.replace("q_proj.bias", "o_proj.bias"): torch.zeros(config["hidden_size"])
        for name in weights
        if name.endswith("q_proj.bias")
    }
    target.mkdir(parents=True, exist_ok=True)
    save_file(changed, target / "model.safetensors", {"format": "pt"})
    llama = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": True}
    write_json(target / "config.json", config | llama | {"head_dim": FACTOR * width})


def _wide(name: str, weight: Tensor, width: int) -> Tensor:
    kind = name.split(".")[-2]
    if kind == "q_proj":
        return _rows(weight, width) * math.sqrt(FACTOR)
    if kind in ("k_proj", "v_proj"):
        return _rows(weight, width)
    return _rows(weight.T, width).T.contiguous() if kind == "o_proj" else weight


def _rows(weight: Tensor, width: int) -> Tensor:
    """Put row i of each head at place `FACTOR` i of a wider head, and zeros between."""
    heads = weight.unflatten(0, (-1, width))
    wide = heads.new_zeros(len(heads), FACTOR * width, *heads.shape[2:])
    wide[:, ::FACTOR] = heads
    return wide.flatten(0, 1)
