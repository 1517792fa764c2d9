"""The safetensors files of a model folder, checked by their headers before any weight is read."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field
from safetensors import SafetensorError, safe_open
from transformers import PreTrainedModel

from citer.errors import InputError, reading
from citer.storage.tables import read_as

Shapes = Mapping[str, list[int]]
DERIVED = "rotary_emb.inv_freq"  # stored by old checkpoints; the configuration determines it


class Index(BaseModel):
    """`model.safetensors.index.json`: the file that holds each tensor."""

    weight_map: Annotated[dict[str, str], Field(min_length=1)]


def weight_files(path: Path) -> list[Path]:
    """Return the paths of a model folder's safetensors files. The files may be missing."""
    single, index = path / "model.safetensors", path / "model.safetensors.index.json"
    if index.is_file() and not single.is_file():  # transformers prefers the single file
        return sorted({path / name for name in read_as(index, Index).weight_map.values()})
    return [single]


def tensor_shapes(file: Path) -> dict[str, list[int]]:
    """Read the shape of every tensor from the header. Raises InputError for a truncated file."""
    try:
        with reading(file), safe_open(file, "pt") as tensors:
            return {name: tensors.get_slice(name).get_shape() for name in sorted(tensors.keys())}
    except SafetensorError as error:
        raise InputError(f"{file}: not whole safetensors weights: {error}") from None


def tensor_bytes(file: Path) -> dict[str, int]:
    """Read the size of every tensor from the header of a file that `tensor_shapes` accepts."""
    with file.open("rb") as stream:
        header = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
    header.pop("__metadata__", None)
    offsets = {name: tensor["data_offsets"] for name, tensor in header.items()}
    return {name: end - begin for name, (begin, end) in offsets.items()}


def check_tensors(
    path: Path, network: PreTrainedModel, shapes: Shapes, free: tuple[str, ...] = ()
) -> None:
    """Raise InputError for the first tensor that is missing, unexpected or of a wrong shape.

    transformers would initialise a missing tensor at random and ignore an unexpected one. Under
    each prefix in `free`, one tensor of any name and shape is enough.
    """
    if wrong := list(_differences(network, shapes, free)):
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise InputError(f"{path}: {wrong[0]}{more}")


def _differences(network: PreTrainedModel, shapes: Shapes, free: tuple[str, ...]) -> Iterator[str]:
    expected = {name: list(tensor.shape) for name, tensor in network.state_dict().items()}
    stored = {prefix for prefix in free if any(name.startswith(prefix) for name in shapes)}
    for name in sorted(expected.keys() | shapes):
        if name.startswith(tuple(stored)):
            continue
        if name not in shapes:
            if name not in network.all_tied_weights_keys:
                yield f"{name}: missing, config.json expects this tensor"
        elif name not in expected:
            if not name.endswith(DERIVED):
                yield f"{name}: unexpected, config.json has no such tensor"
        elif shapes[name] != expected[name]:
            shape = f"its shape is {shapes[name]}"
            yield f"{name}: {shape}, config.json expects {expected[name]}"
