"""The size of a model, by its configuration and the headers of its weight files."""

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, PositiveInt
from torch import nn
from transformers import PreTrainedModel

from citer.errors import InputError
from citer.io import read_as
from citer.models.folder import ModelFolder, outline
from citer.models.pair import LanguageModel
from citer.models.weights import check_tensors

INTEGER = re.compile("[Ii]nt([48])")  # in the name of a torchao method
HEADERS, CONFIG = "config and weight headers", "config only: no weights"


class Quantisation(BaseModel):
    """How the weights are quantised: the fields of several methods."""

    quant_method: str | None = None
    bits: PositiveInt | None = None  # awq, gptq
    group_size: int | None = None
    load_in_4bit: bool = False  # bitsandbytes
    load_in_8bit: bool = False
    bnb_4bit_use_double_quant: bool = False
    quant_type: Any = None  # torchao

    @property
    def bits_per_weight(self) -> float | None:
        """Bits of a weight with its part of scale and zero point, or None if unknown."""
        group = self.group_size or 0
        if self.quant_method in ("awq", "gptq") and self.bits:
            return self.bits + ((16 + self.bits) / group if group > 0 else 0)
        if self.quant_method == "bitsandbytes" and self.load_in_4bit:  # 64 weights share a scale
            return 4 + (8 / 64 + 32 / (64 * 256) if self.bnb_4bit_use_double_quant else 32 / 64)
        if self.quant_method == "bitsandbytes" and self.load_in_8bit:
            return 8
        if self.quant_method == "torchao" and (found := INTEGER.search(str(self.quant_type))):
            return int(found[1])
        return None


class Quantised(BaseModel):
    """The part of config.json that says whether weights are quantised."""

    quantization_config: Quantisation | None = None


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
        if not any(file.is_file() for file in folder.weight_files):
            stored = _estimated(path, network, quantisation) if quantisation else None
            return cls(path, network, stored, CONFIG)
        shapes = folder.shapes
        if not quantisation:
            check_tensors(path, network, shapes)
            return cls(path, network, None, HEADERS)
        return cls(path, network, sum(f.stat().st_size for f in folder.weight_files), HEADERS)

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


def _estimated(path: Path, network: PreTrainedModel, quantisation: Quantisation) -> int:
    """Estimate the bytes of all weights. All linear layers but the head count as quantised."""
    bits = quantisation.bits_per_weight
    if bits is None:
        expected = "expected weight files, or awq, gptq, bitsandbytes or torchao with their bits"
        method = quantisation.quant_method
        raise InputError(f"{path}/config.json: quantization_config: {method!r}: {expected}")
    head = network.get_output_embeddings()
    layers = [m for m in network.modules() if isinstance(m, nn.Linear) and m is not head]
    saved = sum(layer.weight.nbytes - layer.weight.numel() * bits / 8 for layer in layers)
    return round(_bytes(network) - saved)
