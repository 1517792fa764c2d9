"""Where models run."""

import torch

from citer.errors import InputError


def resolve_device(device: str) -> torch.device:
    """Resolve `auto` to CUDA if available, otherwise to the CPU.

    Raises InputError if `cuda` is requested but not available.
    """
    if device == "cuda" and not torch.cuda.is_available():
        raise InputError("pair.device: 'cuda': no CUDA device here, expected auto or cpu")
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(device)
