"""Load the weights of one model, and choose the forward that runs them."""

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils.logging import disable_progress_bar

from citer.config.params import PairParams
from citer.models.device import device_for, device_map_for
from citer.models.folder import ModelFolder
from citer.models.forward import OWN, Forward, check_forward
from citer.models.packing import pack
from citer.models.stock import STOCK, load_stock


def forward_of(name: str, folder: ModelFolder, params: PairParams) -> Forward:
    """A quantised LLM and one on several devices run in transformers' own forward."""
    return STOCK if folder.quantised or (name == "llm" and params.llm_device_map) else OWN


def load_network(name: str, folder: ModelFolder, params: PairParams) -> PreTrainedModel:
    """Load a checked folder and compare its states with those of transformers."""
    disable_progress_bar()  # transformers shows one per tensor
    forward = forward_of(name, folder, params)
    if forward is STOCK:
        network = load_stock(folder.path, params.dtype, device_map_for(name, params))
    else:
        network = _load_own(folder.path, params.dtype, device_for(name, params))
    check_forward(network, folder.path, forward)
    return network


def _load_own(path: Path, dtype: str, device: torch.device) -> PreTrainedModel:
    network = AutoModelForCausalLM.from_pretrained(
        path, dtype=getattr(torch, dtype), attn_implementation="sdpa", local_files_only=True
    )
    network.requires_grad_(False)
    network.eval().to(device)
    pack(network)
    return network
