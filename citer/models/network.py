"""Load the weights of one model, and choose the forward that runs them.

On a CPU, large linear layers hold their weights in oneDNN's own layout. A forward of few tokens
should take as long as reading its weights once. PyTorch's layer takes longer. It reads float32
weights twice for two tokens and three times for three; for four or more tokens it copies them. It
converts bfloat16 weights in every forward.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import pad
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils.logging import disable_progress_bar

from citer.config.params import PairParams
from citer.models.device import device_for, device_map_for
from citer.models.folder import ModelFolder
from citer.models.forward import OWN, Forward, check_forward
from citer.models.rounding import linear_layers, round_weights, works
from citer.models.stock import STOCK, load_stock
from citer.progress import warn

LARGE = 2**20  # bytes; smaller weights fit a core's cache
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 1e-2}  # the largest deviation of a product
FEWEST = 4  # tokens; with fewer, oneDNN's products are slower


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
        network = AutoModelForCausalLM.from_pretrained(
            folder.path,
            dtype=getattr(torch, params.dtype),
            attn_implementation="sdpa",
            local_files_only=True,
        )
        network.requires_grad_(False).eval().to(device_for(name, params))
        round_weights(network) if folder.weights == "int8" else pack(network)
    check_forward(network, folder.path, forward)
    return network


class PackedLinear(nn.Module):
    """Replaces a linear layer for inference, with its weight converted."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight = torch.ops.mkldnn._reorder_linear_weight(linear.weight, FEWEST)
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.bias = linear.bias

    def forward(self, states: Tensor) -> Tensor:
        """Map (..., inputs) to (..., outputs)."""
        states_MI = states.flatten(0, -2)
        tokens = len(states_MI)
        if tokens < FEWEST:
            states_MI = pad(states_MI, (0, 0, 0, FEWEST - tokens))
        states_MO = torch.ops.mkldnn._linear_pointwise(
            states_MI, self.weight, self.bias, "none", [], ""
        )
        return states_MO[:tokens].unflatten(0, states.shape[:-1])


def pack(network: nn.Module) -> None:
    """Replace a network's large linear layers, if device and dtype allow it.

    If the LM head shares its weights with the embedding, they are held twice, since the embedding
    needs the plain layout. The packed layers use private operators of PyTorch. If these have
    changed, no layer is replaced, and a warning says that decoding is slower.
    """
    places = [place for place in linear_layers(network) if _packable(place[2].weight)]
    if places and not works(places[0][2], PackedLinear, TOLERANCE[places[0][2].weight.dtype]):
        warn(f"torch {torch.__version__}: oneDNN's operators have changed: decoding will be slower")
        return
    for parent, name, layer in places:
        setattr(parent, name, PackedLinear(layer))


def _packable(weight: Tensor) -> bool:
    if weight.device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    if weight.dtype == torch.bfloat16:
        supported = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", bool)  # else: False
        return weight.nbytes >= LARGE and supported()
    return weight.nbytes >= LARGE and weight.dtype == torch.float32
