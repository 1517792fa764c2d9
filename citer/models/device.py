"""Where models run."""

import torch

from citer.errors import InputError


def resolve_device(device: str) -> torch.device:
    """`auto` is CUDA where there is one; raises InputError for a CUDA that is not there."""
    if device == "cuda" and not torch.cuda.is_available():
        raise InputError("pair.device: 'cuda': no CUDA device here, expected auto or cpu")
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(device)
