"""The size of a model, by its configuration and the headers of its weight files."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from pydantic import BaseModel, PositiveInt
from torch import nn

from citer.config.pair import Weights
from citer.errors import InputError
from citer.models.folder import ModelFolder, outline
from citer.models.pair import LanguageModel
from citer.models.rounding import round_weights
from citer.models.weights import check_tensors
from citer.storage.tables import read_as

INTEGER = re.compile("[Ii]nt([48])(?!_?[Dd]ynamic|_?[Ss]tatic)")  # not of torchao's activations
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
    """The part of config.json that says how weights are quantised."""

    quantization_config: Quantisation


@dataclass(frozen=True)
class ModelSize:
    """The size of a model.

    model: the model without its weights, in the precision of those that are not quantised
    parameters: their number, that of shared ones counted once
    resident: bytes of all weights
    source: what was read, `HEADERS` or `CONFIG`
    """

    model: LanguageModel
    parameters: int
    resident: int
    source: str

    @classmethod
    def of(cls, path: Path, dtype: str, weights: Weights = "stored") -> "ModelSize":
        """Read a model folder, which may lack its weights. `weights` is as in `ModelFolder`.

        Raises InputError if the engine cannot run the model, if a weight file is torn or does not
        fit config.json, or if the bits of a quantised weight are unknown.
        """
        folder = ModelFolder(path)
        quantised = folder.quantised  # checks config.json
        network = outline(path).to(getattr(torch, dtype))
        has_files = any(file.is_file() for file in folder.weight_files)
        if has_files:
            check_tensors(path, network, folder.stored, quantised)
        source = HEADERS if has_files else CONFIG
        parameters = network.num_parameters()
        if weights == "int8" and not quantised:
            round_weights(network)
        plain = LanguageModel("", path, "", network)
        if not quantised:
            resident = network.get_memory_footprint(return_buffers=False)
            return cls(plain, parameters, resident, source)
        if has_files:
            tensors = folder.stored.values()
            resident, read = sum(each.nbytes for each in tensors), folder.stored_bytes
        else:
            resident, read = _estimated(plain)
        return cls(replace(plain, stored_bytes=read), parameters, resident, source)

    @property
    def quantised(self) -> bool:
        return self.model.stored_bytes is not None


def _estimated(plain: LanguageModel) -> tuple[int, int]:
    """Estimate the bytes of all weights, and of those that every forward reads.

    All linear layers but the head count as quantised.
    """
    config, network = plain.path / "config.json", plain.network
    quantisation = read_as(config, Quantised).quantization_config
    bits = quantisation.bits_per_weight
    if bits is None:
        expected = "expected weight files, or awq, gptq, bitsandbytes or torchao with their bits"
        method = quantisation.quant_method
        raise InputError(f"{config}: quantization_config: {method!r}: {expected}")
    head = network.get_output_embeddings()
    layers = [m for m in network.modules() if isinstance(m, nn.Linear) and m is not head]
    saved = round(sum(layer.weight.nbytes - layer.weight.numel() * bits / 8 for layer in layers))
    return network.get_memory_footprint(return_buffers=False) - saved, plain.weight_bytes - saved
