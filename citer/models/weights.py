"""The safetensors files of a model folder: checks of their headers, quantised weights, and digests.

Digests are kept between processes while paths, inodes, sizes and times of the files stay as they
are. No program can set ctime back. Two writes within a tick of the clock leave equal times, and a
write through a memory map may set them half a minute late. So nothing is kept of files that changed
less than a minute before they were read.
"""

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, Field
from safetensors import SafetensorError, safe_open
from torch import nn
from transformers import PreTrainedModel
from transformers.quantizers import AutoHfQuantizer

from citer.errors import InputError, reading
from citer.storage.tables import digest, read_json, write_json

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "citer")
QUIET = 60.0  # seconds

DERIVED = "rotary_emb.inv_freq"  # stored by old checkpoints; the configuration determines it


class Stored(NamedTuple):
    """A tensor in a weight file."""

    shape: list[int]
    nbytes: int


Tensors = Mapping[str, Stored]


class Index(BaseModel):
    """`model.safetensors.index.json`: the file that holds each tensor."""

    weight_map: Annotated[dict[str, str], Field(min_length=1)]


def stored_tensors(file: Path) -> dict[str, Stored]:
    """Read the header of a weight file. Raises InputError for a truncated file."""
    try:
        with reading(file), safe_open(file, "pt"), file.open("rb") as stream:
            header = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
    except SafetensorError as error:
        raise InputError(f"{file}: not whole safetensors weights: {error}") from None
    header.pop("__metadata__", None)
    offsets = {name: header[name]["data_offsets"] for name in sorted(header)}
    return {
        name: Stored(header[name]["shape"], end - begin) for name, (begin, end) in offsets.items()
    }


def check_tensors(path: Path, network: PreTrainedModel, stored: Tensors, quantised: bool) -> None:
    """Raise InputError for the first tensor that is missing, unexpected or of a wrong shape.

    transformers would initialise a missing tensor at random and ignore an unexpected one. A layer
    of a `quantised` model may have tensors of any names and shapes, but at least one.
    """
    kinds = (nn.Linear, nn.Embedding) if quantised else ()
    free = tuple(f"{name}." for name, part in network.named_modules() if isinstance(part, kinds))
    if wrong := list(_differences(network, stored, free)):
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise InputError(f"{path}: {wrong[0]}{more}")


def _differences(network: PreTrainedModel, stored: Tensors, free: tuple[str, ...]) -> Iterator[str]:
    expected = {name: list(tensor.shape) for name, tensor in network.state_dict().items()}
    filled = tuple(prefix for prefix in free if any(name.startswith(prefix) for name in stored))
    for name in sorted(expected.keys() | stored):
        if name.startswith(filled):
            continue
        if name not in stored:
            if name not in network.all_tied_weights_keys:
                yield f"{name}: missing, config.json expects this tensor"
        elif name not in expected:
            if not name.endswith(DERIVED):
                yield f"{name}: unexpected, config.json has no such tensor"
        elif stored[name].shape != expected[name]:
            shape = f"its shape is {stored[name].shape}"
            yield f"{name}: {shape}, config.json expects {expected[name]}"


def refuse_quantised(path: Path) -> None:
    """Raise InputError for the folder of an SLM that is quantised."""
    raise InputError(f"{path}/config.json: quantization_config: only an LLM may be quantised")


def check_quantiser(path: Path, settings: dict[str, Any]) -> None:
    """Raise InputError if transformers does not know the method, or if a package is missing."""
    try:
        quantiser = AutoHfQuantizer.from_config(settings, pre_quantized=True)
        quantiser.validate_environment(device_map="auto")
    except Exception as error:  # each quantiser raises errors of its own
        reason = " ".join(str(error).split())
        raise InputError(f"{path}/config.json: quantization_config: {reason}") from error


def bytes_read(network: PreTrainedModel, sizes: Mapping[str, int]) -> int:
    """Return the bytes that every forward reads: all but those of an untied input embedding.

    `sizes` has the bytes of each tensor.
    """
    names = {part: f"{name}." for name, part in network.named_modules()}
    head, embedding = names[network.get_output_embeddings()], names[network.get_input_embeddings()]
    tied = not any(name.startswith(head) for name in sizes)
    return sum(size for name, size in sizes.items() if tied or not name.startswith(embedding))


def kept_digest(*files: Path) -> str:
    """Return `digest` of files. Reads them only if they have changed since the last call.

    Raises InputError for a missing file. A cache that cannot be read or written is ignored.
    """
    place = CACHE / "digests" / f"{digest(*(str(file.resolve()) for file in files))}.json"
    states = _quiet_states(files)
    with suppress(InputError, KeyError, TypeError):
        kept = read_json(place)
        if kept["states"] == states:
            return str(kept["digest"])
    found = digest(*files)
    if states and states == _quiet_states(files):
        with suppress(OSError, InputError):
            write_json(place, {"states": states, "digest": found})
    return found


def _quiet_states(files: tuple[Path, ...]) -> list[list[int]] | None:
    """Return the state of each file, None if one is missing or has changed in the last minute."""
    try:
        stats = [file.stat() for file in files]
    except OSError:
        return None  # `digest` names the file
    newest = max(max(each.st_mtime_ns, each.st_ctime_ns) for each in stats)
    if newest > time.time_ns() - QUIET * 1e9:
        return None
    return [[each.st_ino, each.st_size, each.st_mtime_ns, each.st_ctime_ns] for each in stats]
