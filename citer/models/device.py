"""Where models run."""

import os
from itertools import chain

import torch
from torch import nn

from citer.config.pair import DEVICE
from citer.config.params import PairParams
from citer.errors import InputError
from citer.progress import say


def resolve_device(device: str) -> torch.device:
    """Resolve `auto` to CUDA if available, otherwise to the CPU.

    Raises InputError if `cuda` is requested but not available.
    """
    if device == "cuda" and not torch.cuda.is_available():
        place = DEVICE if os.environ.get(DEVICE) else "pair.device"
        raise InputError(f"{place}: 'cuda': no CUDA device here, expected auto or cpu")
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(device)


def announce(stage: str, params: PairParams) -> None:
    """Print where a stage runs. Raises InputError as `resolve_device` does."""
    if resolve_device(params.device).type == "cpu":
        threads = torch.get_num_threads()
        place = f"cpu, {threads} thread{'s' if threads > 1 else ''}"
    else:
        visible = torch.cuda.device_count()
        others = f", {visible} GPUs visible" if visible > 1 else ""
        place = f"cuda:0 {torch.cuda.get_device_name(0)}{others}"
    say(f"{stage}: on {place}")


def device_for(name: str, params: PairParams) -> torch.device:
    """Return where model `name` runs. If the LLM is on several devices, the SLM gets the last."""
    device = resolve_device(params.device)
    if name == "slm" and params.llm_device_map and device.type == "cuda":
        return torch.device("cuda", torch.cuda.device_count() - 1)
    return device


def device_map_for(name: str, params: PairParams) -> str:
    """Return the `device_map` of transformers for model `name`."""
    device = device_for(name, params)
    split = name == "llm" and params.llm_device_map and device.type == "cuda"
    return "auto" if split else str(device)


def device_of(module: nn.Module) -> torch.device:
    """Return where a module runs. accelerate may keep its weights elsewhere between forwards."""
    if hook := getattr(module, "_hf_hook", None):
        return torch.device(hook.execution_device)
    return next(chain(module.parameters(), module.buffers())).device
