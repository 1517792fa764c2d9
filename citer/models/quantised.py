"""Quantised weights: whether transformers can run them here, and how many bytes they have."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn
from transformers import PreTrainedModel
from transformers.quantizers import AutoHfQuantizer

from citer.errors import InputError


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


def free_names(network: PreTrainedModel) -> tuple[str, ...]:
    """Return the prefixes under which a quantised model may store any tensors."""
    kinds = (nn.Linear, nn.Embedding)
    return tuple(f"{name}." for name, part in network.named_modules() if isinstance(part, kinds))


def bytes_read(network: PreTrainedModel, sizes: Mapping[str, int]) -> int:
    """Return the bytes that every forward reads: all but those of an untied input embedding.

    `sizes` has the bytes of each stored tensor.
    """
    names = {part: f"{name}." for name, part in network.named_modules()}
    head, embedding = names[network.get_output_embeddings()], names[network.get_input_embeddings()]
    tied = not any(name.startswith(head) for name in sizes)
    return sum(size for name, size in sizes.items() if tied or not name.startswith(embedding))
