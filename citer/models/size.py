"""The size of a model, by its configuration and the headers of its weight files."""

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel
from torch import nn
from transformers import PreTrainedModel

from citer.errors import InputError
from citer.io import read_as
from citer.models.folder import ModelFolder, outline
from citer.models.pair import LanguageModel
from citer.models.weights import check_tensors

HEADERS, CONFIG = "config and weight headers", "config only: no weights"


class Quantised(BaseModel):
    """The part of config.json that says how weights are quantised."""

    quantization_config: dict[str, Any] | None = None


@dataclass(frozen=True)
class ModelSize:
    """A model's size when its plain weights are loaded in the precision of `network`.

    network: the model without its weights
    stored: bytes of all weights of a quantised model, or None
    source: what was read, `HEADERS` or `CONFIG`
    """

    path: Path
    network: PreTrainedModel
    stored: int | None
    source: str

    @classmethod
    def of(cls, path: Path, dtype: str) -> "ModelSize":
        """Read a model folder, which may lack its weights.

        Raises InputError if the folder has no usable configuration, if a weight file is torn or
        does not fit the configuration, or if the bits of a quantised weight are unknown.
        """
        quantisation = read_as(path / "config.json", Quantised).quantization_config
        network = outline(path).to(getattr(torch, dtype))
        folder = ModelFolder(path)
        has_files = all(file.is_file() for file in folder.weight_files)
        if has_files and quantisation is None:
            check_tensors(path, network, folder.shapes)
        stored = None
        if quantisation is not None:
            stored = _stored(folder) if has_files else _estimated(path, network, quantisation)
        return cls(path, network, stored, HEADERS if has_files else CONFIG)

    @cached_property
    def parameters(self) -> int:
        return sum(weight.numel() for weight in self.network.parameters())

    @cached_property
    def resident(self) -> int:
        """Bytes of all weights."""
        return _bytes(self.network) if self.stored is None else self.stored

    @cached_property
    def weight_bytes(self) -> int:
        """Bytes of the weights that every forward reads."""
        return self.resident - (_bytes(self.network) - self._model.weight_bytes)

    @property
    def kv_bytes(self) -> int:
        """Bytes of keys and values that one position occupies."""
        return self._model.kv_bytes

    @property
    def context(self) -> int:
        return self._model.card.context

    @property
    def layers(self) -> int:
        return self.network.config.num_hidden_layers

    @property
    def hidden_size(self) -> int:
        return self._model.hidden_size

    @property
    def vocab_size(self) -> int:
        return self._model.vocab_size

    @property
    def ends(self) -> tuple[int, int]:
        """Bytes of the input embedding and of the output head, which is 0 if they are tied."""
        embedding, head = self.network.get_input_embeddings(), self.network.get_output_embeddings()
        return _bytes(embedding), 0 if head.weight is embedding.weight else _bytes(head)

    @cached_property
    def _model(self) -> LanguageModel:
        return LanguageModel("", self.path, "", self.network)


def _bytes(module: nn.Module) -> int:
    return sum(weight.nbytes for weight in module.parameters())


def _stored(folder: ModelFolder) -> int:
    assert folder.shapes  # raises InputError for a torn file
    return sum(file.stat().st_size for file in folder.weight_files)


def _estimated(path: Path, network: PreTrainedModel, settings: dict[str, Any]) -> int:
    """Estimate the bytes of a quantised model: all linear layers but the head have `_bits`."""
    bits = _bits(path, settings)
    head = network.get_output_embeddings()
    layers = [m for m in network.modules() if isinstance(m, nn.Linear) and m is not head]
    saved = sum(m.weight.nbytes - m.weight.numel() * bits / 8 for m in layers)
    return round(_bytes(network) - saved)


def _bits(path: Path, settings: dict[str, Any]) -> float:
    """Return the bits of a quantised weight with its part of scale and zero point."""
    method, group = settings.get("quant_method"), settings.get("group_size", 0)
    if method in ("awq", "gptq") and isinstance(bits := settings.get("bits"), int):
        return bits + (16 + bits) / group if group > 0 else bits
    if method == "bitsandbytes" and settings.get("load_in_4bit"):  # 64 weights share a scale
        nested = settings.get("bnb_4bit_use_double_quant")
        return 4 + (8 / 64 + 32 / (64 * 256) if nested else 32 / 64)
    if method == "bitsandbytes" and settings.get("load_in_8bit"):
        return 8
    if method == "torchao" and (found := re.search(r"[Ii]nt([48])", str(settings))):
        return int(found[1])
    expected = "expected weight files, or awq, gptq, bitsandbytes or torchao with their bits"
    raise InputError(f"{path}/config.json: quantization_config: {method!r}: {expected}")
