"""Large linear layers on a CPU, their weights laid out as oneDNN reads them.

A forward of few tokens should take the time to read its weights once. PyTorch's own layer reads
float32 weights two and three times for two and three tokens, and copies them first from four on;
bfloat16 ones it lays out anew in every forward.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from citer.models.deviation import deviation
from citer.progress import warn

LARGE = 2**20  # bytes; smaller weights stay in a core's cache
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 1e-2}  # the largest deviation of a product
FEWEST = 4  # tokens; for fewer oneDNN has only slower products


class PackedLinear(nn.Module):
    """Stands in for a linear layer, whose weight it takes over, when nothing is trained."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight = torch.ops.mkldnn._reorder_linear_weight(linear.weight, FEWEST)
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.bias = linear.bias

    def forward(self, states: Tensor) -> Tensor:
        """(..., inputs) → (..., outputs)"""
        states_MI = states.flatten(0, -2)
        tokens = len(states_MI)
        if tokens < FEWEST:
            states_MI = pad(states_MI, (0, 0, 0, FEWEST - tokens))
        states_MO = torch.ops.mkldnn._linear_pointwise(
            states_MI, self.weight, self.bias, "none", [], ""
        )
        return states_MO[:tokens].unflatten(0, states.shape[:-1])


def pack(network: nn.Module) -> None:
    """Replace a network's large linear layers, where device and type allow it.

    Of weights that a head shares with the embedding, which needs them as they are, it holds two.
    Where PyTorch's operators, which are private, are not what they were, the layers stay: with a
    warning, since decoding then takes longer.
    """
    places = [
        (parent, name, layer)
        for parent in network.modules()
        for name, layer in parent.named_children()
        if isinstance(layer, nn.Linear) and _packable(layer.weight)
    ]
    if places and not _works(places[0][2]):
        warn(f"torch {torch.__version__}: oneDNN's operators have changed: decoding will be slower")
        return
    for parent, name, layer in places:
        setattr(parent, name, PackedLinear(layer))


@torch.inference_mode()
def _works(linear: nn.Linear) -> bool:
    """Whether a packed layer's products, of one token and of more, are the layer's own."""
    states_MI = torch.linspace(-1, 1, (FEWEST + 1) * linear.in_features, dtype=linear.weight.dtype)
    states_MI = states_MI.view(-1, linear.in_features)
    try:
        packed = PackedLinear(linear)
        parts = (states_MI[:1], states_MI)
        deviations = (deviation(packed(part_MI), linear(part_MI)) for part_MI in parts)
        return all(found <= TOLERANCE[linear.weight.dtype] for found in deviations)
    except (AttributeError, RuntimeError, TypeError):  # no such operator, or of other arguments
        return False


def _packable(weight: Tensor) -> bool:
    if weight.device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    if weight.dtype == torch.bfloat16:
        supported = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", bool)  # else: False
        return weight.nbytes >= LARGE and supported()
    return weight.nbytes >= LARGE and weight.dtype == torch.float32
