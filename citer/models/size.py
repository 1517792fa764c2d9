"""The size of a model, by its configuration and the headers of its weight files."""

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import torch
from pydantic import BaseModel, PositiveInt

from citer.errors import InputError
from citer.models.folder import ModelFolder, outline
from citer.models.pair import LanguageModel, bytes_of
from citer.models.weights import check_tensors, free_names, tensor_bytes
from citer.storage.tables import read_as

HEADERS, CONFIG = "config and weight headers", "config only: no weights"


class Index(BaseModel):
    """The part of `model.safetensors.index.json` that has the bytes of all weights."""

    class Total(BaseModel):
        total_size: PositiveInt

    metadata: Total


@dataclass(frozen=True)
class ModelSize:
    """The size of a model.

    model: the model without its weights, in the precision of those that are not quantised
    resident: bytes of all weights
    source: what was read, `HEADERS` or `CONFIG`
    """

    model: LanguageModel
    resident: int
    source: str

    @classmethod
    def of(cls, path: Path, dtype: str) -> "ModelSize":
        """Read a model folder, which may lack its weights.

        Raises InputError if the engine cannot run the model, if a weight file is torn or does not
        fit config.json, or if a quantised model has neither weight files nor an index of them.
        """
        folder = ModelFolder(path)
        quantised = folder.quantised  # checks config.json
        network = outline(path).to(getattr(torch, dtype))
        has_files = any(file.is_file() for file in folder.weight_files)
        if has_files:
            free = free_names(network) if quantised else ()
            check_tensors(path, network, folder.shapes, free)
        source = HEADERS if has_files else CONFIG
        plain = LanguageModel("", path, "", network)
        if not quantised:
            return cls(plain, bytes_of(network), source)
        if has_files:
            stored = sum(sum(tensor_bytes(file).values()) for file in folder.weight_files)
            return cls(replace(plain, stored_bytes=folder.stored_bytes), stored, source)
        stored, read = _listed(plain)
        return cls(replace(plain, stored_bytes=read), stored, source)

    @cached_property
    def parameters(self) -> int:
        return sum(weight.numel() for weight in self.model.network.parameters())

    @property
    def quantised(self) -> bool:
        return self.model.stored_bytes is not None


def _listed(plain: LanguageModel) -> tuple[int, int]:
    """Return the bytes of all weights, and of those that every forward reads, by their index."""
    index = plain.path / "model.safetensors.index.json"
    if not index.is_file():
        expected = f"expected weight files, or {index.name} with their total_size"
        raise InputError(f"{plain.path}/config.json: quantization_config: {expected}")
    stored = read_as(index, Index).metadata.total_size
    embedding = bytes_of(plain.network) - plain.weight_bytes
    return stored, stored - embedding
