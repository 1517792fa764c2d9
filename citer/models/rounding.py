"""Linear layers with weights of 8 bits and a scale per row.

On a CPU, FBGEMM multiplies them by states that are rounded to 8 bits, with a scale per token. With
a scale per tensor, as torch's dynamic layers have, an answer would depend on the others in its
batch. Elsewhere the weights are converted in every forward.
"""

from collections.abc import Iterator
from copy import deepcopy
from warnings import catch_warnings, simplefilter

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from citer.progress import warn

MOST = 127  # the largest weight
# The largest state. Without VNNI, FBGEMM adds two products in 16 bits, which larger ones exceed.
LEVELS = 127 if getattr(torch.cpu, "_is_vnni_supported", bool)() else 63
TINY = torch.finfo(torch.float32).tiny  # in place of the scale of zeros
TOLERANCE = 0.1  # the largest deviation of a product, which rounds the states, too


class Int8Linear(nn.Module):
    """Replaces a linear layer for inference, with its weights rounded to the nearest.

    Once packed, `weight` is on the device `meta`: only its size is used.
    """

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        weight_OI = layer.weight.float()
        scale_O1 = weight_OI.abs().amax(1, keepdim=True).clamp(min=TINY) / MOST
        rounded_OI = (weight_OI / scale_O1).round().to(torch.int8)
        self.scale = nn.Parameter(scale_O1, requires_grad=False)
        self.weight = nn.Parameter(rounded_OI, requires_grad=False)
        self.bias = layer.bias
        self.packed: torch.ScriptObject | None = None

    def pack(self) -> None:
        """Convert the weights to FBGEMM's layout."""
        scale_O = self.scale[:, 0].double()
        zero_O = torch.zeros(len(scale_O), dtype=torch.long)
        with catch_warnings():  # PyTorch means to remove quantised dtypes some day
            simplefilter("ignore", UserWarning)
            quantised_OI = torch._make_per_channel_quantized_tensor(self.weight, scale_O, zero_O, 0)
        self.packed = torch.ops.quantized.linear_prepack(quantised_OI, None)
        self.weight = nn.Parameter(self.weight.to("meta"), requires_grad=False)

    def forward(self, states: Tensor) -> Tensor:
        """Map (..., inputs) to (..., outputs)."""
        if self.packed is None:
            products = linear(states, self.weight * self.scale.to(states.dtype))
        else:
            products = self._multiplied(states.float()).to(states.dtype)
        return products if self.bias is None else products + self.bias

    def _multiplied(self, states: Tensor) -> Tensor:
        largest = states.abs().amax(-1, keepdim=True).clamp(min=TINY)
        multiply = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32
        return multiply(states / largest, 1 / LEVELS, LEVELS + 1, self.packed) * largest


def round_weights(network: nn.Module) -> None:
    """Round the weights of every linear layer, large or small.

    The packed layers use operators of PyTorch that it means to remove. If they do not run here, no
    layer is packed, and a warning says that decoding is slower.
    """
    places = list(linear_layers(network))
    rounded = [Int8Linear(layer) for _, _, layer in places]
    for (parent, name, _), layer in zip(places, rounded, strict=True):
        setattr(parent, name, layer)
    if rounded[0].scale.device.type != "cpu":
        return
    if not _works(rounded[0]):
        warn(f"torch {torch.__version__}: FBGEMM does not run here: decoding will be slower")
        return
    for layer in rounded:
        layer.pack()


@torch.inference_mode()
def _works(layer: Int8Linear) -> bool:
    """Return whether a packed layer gives nearly the same products."""
    states_2I = torch.linspace(-1, 1, 2 * layer.weight.shape[1]).view(2, -1)
    packed = deepcopy(layer)
    try:
        packed.pack()
        return deviation(packed(states_2I), layer(states_2I)) <= TOLERANCE
    except (AttributeError, RuntimeError, TypeError):
        return False  # the operator is missing or takes other arguments


def linear_layers(network: nn.Module) -> Iterator[tuple[nn.Module, str, nn.Linear]]:
    """Yield each linear layer after its parent and its name there."""
    for parent in network.modules():
        for name, layer in parent.named_children():
            if isinstance(layer, nn.Linear):
                yield parent, name, layer


def deviation(ours: Tensor, theirs: Tensor) -> float:
    """Return |ours - theirs| / |theirs|, in norms. It is NaN if either tensor has a NaN."""
    ours, theirs = ours.double(), theirs.double()
    return float((ours - theirs).norm() / theirs.norm())
