"""Load the weights of one model, and choose the forward that runs them: ours, or the stock one.

The stock forward is that of transformers, unchanged. It runs an LLM that ours cannot: one that is
quantised, or whose layers are on several devices. It pads all rows to the longest and is slower
than ours. Its keys and values are in our slots.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel
from transformers.utils.logging import disable_progress_bar

from citer.config.params import PairParams
from citer.errors import InputError
from citer.models.cache import Batch, SlotCache
from citer.models.device import device_for, device_map_for, device_of
from citer.models.families import FULL, SLIDING
from citer.models.folder import ModelFolder, outline
from citer.models.forward import Forward, check_forward, wanted_hidden
from citer.models.rounding import pack, round_weights
from citer.progress import warn


def stock_hidden(network: PreTrainedModel, ids_M: Tensor, batch: Batch, cache: SlotCache) -> Tensor:
    """Run a forward. Return hidden_WH, the states of the wanted tokens after the final norm."""
    position_NT = batch.side_by_side(batch.position_M)
    hidden_NTH = network.base_model(
        input_ids=batch.side_by_side(ids_M.to(position_NT.device)),
        position_ids=position_NT,
        # Without masks, transformers would take all rows to have equal lengths.
        attention_mask=_masks(network.config, batch.span, position_NT),
        past_key_values=cache,
        use_cache=True,
    ).last_hidden_state
    return batch.wanted(batch.end_to_end(hidden_NTH))


def _masks(config: PreTrainedConfig, span: int, position_NT: Tensor) -> Tensor | dict[str, Tensor]:
    """Return mask_N1TP, the positions that a token attends to, or one such mask per layer type."""
    position_P = torch.arange(span, device=position_NT.device)
    age_N1TP = (position_NT[:, :, None] - position_P)[:, None]
    window = getattr(config, "sliding_window", None)
    every = {FULL: age_N1TP >= 0}
    every[SLIDING] = every[FULL] & (age_N1TP < window) if window else every[FULL]
    kinds = set(getattr(config, "layer_types", None) or [SLIDING])
    return {kind: every[kind] for kind in kinds} if len(kinds) > 1 else every[kinds.pop()]


@torch.inference_mode()
def load_stock(path: Path, dtype: str, device_map: str) -> PreTrainedModel:
    """Load a network as transformers loads it, quantised or not, on the devices of `device_map`.

    Raises InputError if transformers cannot load it, would initialise a tensor at random, or cannot
    run it in `dtype`.
    """
    try:
        network, missing = _loaded(path, dtype, device_map)
        first_11 = torch.tensor([[0]], device=device_of(network.get_input_embeddings()))
        network.base_model(input_ids=first_11, use_cache=False)
    except Exception as error:  # each quantiser raises errors of its own
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(f"{path}: transformers cannot run it in {dtype}: {reason}") from error
    if missing:
        raise InputError(f"{path}: {missing[0]}: missing, config.json expects this tensor")
    if any(weight.is_meta for weight in network.parameters()):
        warn(f"{path}: too large for the devices: some weights are loaded again in every forward")
    return network


def _loaded(path: Path, dtype: str, device_map: str | None = None) -> tuple[Any, list[str]]:
    """Return the network and the tensors that its files lack."""
    loaded: Any = AutoModelForCausalLM.from_pretrained(
        path,
        dtype=getattr(torch, dtype),
        attn_implementation="sdpa",
        local_files_only=True,
        device_map=device_map,
        output_loading_info=True,
    )
    network, report = loaded
    return network.requires_grad_(False).eval(), sorted(report["missing_keys"])


def forward_of(name: str, folder: ModelFolder, params: PairParams) -> Forward:
    """A quantised LLM and one on several devices run in transformers' own forward."""
    stock = folder.quantised or (name == "llm" and params.llm_device_map)
    return stock_hidden if stock else wanted_hidden


def outlined(folder: ModelFolder, params: PairParams) -> PreTrainedModel:
    """Return the network of a checked folder without its weights."""
    network = outline(folder.path).to(getattr(torch, params.dtype))
    if folder.weights == "int8":
        round_weights(network)
    return network


def load_network(name: str, folder: ModelFolder, params: PairParams) -> PreTrainedModel:
    """Load a checked folder and compare its states with those of transformers."""
    disable_progress_bar()  # transformers shows one per tensor
    forward = forward_of(name, folder, params)
    if forward is stock_hidden:
        network = load_stock(folder.path, params.dtype, device_map_for(name, params))
    else:
        network, _ = _loaded(folder.path, params.dtype)
        network.to(device_for(name, params))
        round_weights(network) if folder.weights == "int8" else pack(network)
    check_forward(network, folder.path, forward)
    return network
