"""Large linear layers on a CPU, their weights laid out as oneDNN reads them.

A forward of few tokens should take the time to read its weights once. PyTorch's own layer reads
float32 weights two and three times for two and three tokens, and copies them first from four on;
bfloat16 ones it lays out anew in every forward.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

LARGE = 2**20  # bytes; smaller weights stay in a core's cache
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
    """
    for parent in list(network.modules()):
        for name, layer in list(parent.named_children()):
            if isinstance(layer, nn.Linear) and _packable(layer.weight):
                setattr(parent, name, PackedLinear(layer))


def _packable(weight: Tensor) -> bool:
    if weight.device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    if weight.dtype == torch.bfloat16:
        return weight.nbytes >= LARGE and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return weight.nbytes >= LARGE and weight.dtype == torch.float32
