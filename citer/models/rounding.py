"""Linear layers for inference: with weights of 8 bits and a scale per row, or packed by oneDNN.

On a CPU, FBGEMM multiplies weights of 8 bits by states that are rounded to 8 bits, with a scale per
token. With a scale per tensor, as torch's dynamic layers have, an answer would depend on the others
in its batch. Elsewhere the weights are converted in every forward.

On a CPU, large layers that are not rounded hold their weights in oneDNN's own layout, so that a
forward of few tokens takes as long as reading its weights once. PyTorch's layer reads float32
weights several times or copies them, and converts bfloat16 weights in every forward.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import repeat
from warnings import catch_warnings, simplefilter

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad

from citer.progress import warn

# The largest state. Without VNNI, FBGEMM adds two products in 16 bits, which larger ones exceed.
LEVELS = 127 if getattr(torch.cpu, "_is_vnni_supported", bool)() else 63
CPU: dict[str, bool] = getattr(torch.cpu, "get_capabilities", dict)()
# Whether oneDNN multiplies bfloat16 by instructions of this CPU. Without them it emulates, slowly.
BFLOAT16 = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", bool)() and any(
    CPU[name] for name in CPU if name.endswith("bf16")
)
TINY = torch.finfo(torch.float32).tiny  # in place of the scale of zeros
TOLERANCE = 0.1  # the largest deviation of a product from that of the layer before it was rounded
LARGE = 2**20  # bytes; smaller weights fit a core's cache
PACKED = {torch.float32: 1e-4, torch.bfloat16: 1e-2}  # the largest deviation of a packed layer's
FEWEST = 4  # tokens; with fewer, oneDNN's products are slower
MANY = 16  # tokens; for fewer, PyTorch's bfloat16 layer is faster than conversion
BLOCK = 2**19  # weights; converted to float32, they fit a core's cache
TOGETHER = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))  # read the same states


class Int8Linear(nn.Module):
    """Replaces linear layers that read the same states, with weights rounded to the nearest."""

    def __init__(self, *layers: nn.Linear) -> None:
        super().__init__()
        weight_OI = torch.cat([layer.weight.float() for layer in layers])
        scale_O1 = weight_OI.abs().amax(1, keepdim=True).clamp(min=TINY) / 127
        rounded_OI = (weight_OI / scale_O1).round().to(torch.int8)
        # The first parameter says where the layer is (`device_of`), and `weight` may be on `meta`.
        self.scale = nn.Parameter(scale_O1, requires_grad=False)
        self.weight = nn.Parameter(rounded_OI, requires_grad=False)
        biases = tuple(layer.bias for layer in layers if layer.bias is not None)
        self.bias = nn.Parameter(torch.cat(biases), requires_grad=False) if biases else None

    def forward(self, states: Tensor) -> Tensor:
        """Map (..., inputs) to (..., outputs)."""
        return linear(states, self.weight * self.scale.to(states.dtype), self.bias)


class PackedInt8Linear(Int8Linear):
    """Holds the weights in FBGEMM's layout. `weight` is on `meta`: only its size is used."""

    def __init__(self, *layers: nn.Linear) -> None:
        super().__init__(*layers)
        scale_O = self.scale[:, 0].double()
        zero_O = torch.zeros(len(scale_O), dtype=torch.long)
        with catch_warnings():  # PyTorch means to remove quantised dtypes some day
            simplefilter("ignore", UserWarning)
            quantised_OI = torch._make_per_channel_quantized_tensor(self.weight, scale_O, zero_O, 0)
        self.packed = torch.ops.quantized.linear_prepack(quantised_OI, None)
        self.weight = nn.Parameter(self.weight.to("meta"), requires_grad=False)

    def forward(self, states: Tensor) -> Tensor:
        """Map (..., inputs) to (..., outputs)."""
        dtype, states = states.dtype, states.float()
        largest = states.abs().amax(-1, keepdim=True).clamp(min=TINY)
        multiply = torch.ops.quantized.linear_with_input_q_dq_qweight_dq_output_fp32
        products = multiply(states / largest, 1 / LEVELS, LEVELS + 1, self.packed)
        products = products.mul_(largest).to(dtype)
        return products if self.bias is None else products.add_(self.bias)


class Part(nn.Module):
    """Replaces one of the layers that `whole` multiplies at once."""

    def __init__(self, whole: nn.Module, sizes: Sequence[int], place: int) -> None:
        super().__init__()
        self.whole, self.sizes, self.place = whole, sizes, place

    def forward(self, states: Tensor) -> Tensor:
        """Map (..., inputs) to (..., outputs)."""
        return _products(self.whole, states).split(self.sizes, -1)[self.place]


_products = lru_cache(1)(nn.Module.__call__)  # the parts are asked one after the other


def _merge(parent: nn.Module) -> None:
    for names in TOGETHER:
        own = (getattr(parent, name, None) for name in names)
        layers = [layer for layer in own if isinstance(layer, nn.Linear)]
        if len(layers) == len(names):
            whole, sizes = PackedInt8Linear(*layers), [layer.out_features for layer in layers]
            for place, name in enumerate(names):
                setattr(parent, name, Part(whole, sizes, place))


def round_weights(network: nn.Module) -> None:
    """Round the weights of every linear layer, large or small.

    Warns that decoding is slower if FBGEMM's operators, which PyTorch means to remove, do not run.
    """
    _, _, first = next(linear_layers(network))
    make, on_cpu = Int8Linear, first.weight.device.type == "cpu"
    if on_cpu and works(first, PackedInt8Linear, TOLERANCE):
        make = PackedInt8Linear
        for parent in [*network.modules()]:
            _merge(parent)
    elif on_cpu:
        warn(f"torch {torch.__version__}: FBGEMM does not run here: decoding will be slower")
    for parent, name, layer in [*linear_layers(network)]:
        setattr(parent, name, make(layer))


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


class BlockedLinear(nn.Module):
    """Replaces a layer whose products oneDNN would emulate: multiplies in float32."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias

    def forward(self, states: Tensor) -> Tensor:
        """Map (..., inputs) to (..., outputs)."""
        inputs = states.shape[-1]
        if states.numel() < MANY * inputs:
            return linear(states, self.weight, self.bias)
        wide, rows = states.float(), max(1, BLOCK // inputs)
        biases = repeat(None) if self.bias is None else self.bias.float().split(rows)
        blocks = zip(self.weight.split(rows), biases, strict=False)
        return torch.cat([linear(wide, w.float(), b).to(states.dtype) for w, b in blocks], -1)


def pack(network: nn.Module) -> None:
    """Replace a network's large linear layers, if device and dtype allow it.

    An LM head that shares its weights with the embedding is held twice. If PyTorch's private
    operators have changed, no layer is replaced, and a warning says that decoding is slower.
    """
    places = [place for place in linear_layers(network) if _packable(place[2].weight)]
    if not places:
        return
    first = places[0][2]
    dtype = first.weight.dtype
    make = PackedLinear if BFLOAT16 or dtype == torch.float32 else BlockedLinear
    if not works(first, make, PACKED[dtype]):
        warn(f"torch {torch.__version__}: oneDNN's operators have changed: decoding will be slower")
        return
    for parent, name, layer in places:
        setattr(parent, name, make(layer))


def _packable(weight: Tensor) -> bool:
    large = weight.device.type == "cpu" and weight.nbytes >= LARGE
    return large and weight.dtype in PACKED and torch.backends.mkldnn.is_available()


def linear_layers(network: nn.Module) -> Iterator[tuple[nn.Module, str, nn.Linear]]:
    """Yield each linear layer after its parent and its name there."""
    for parent in network.modules():
        for name, layer in parent.named_children():
            if isinstance(layer, nn.Linear):
                yield parent, name, layer


@torch.inference_mode()
def works(layer: nn.Linear, pack: Callable[[nn.Linear], nn.Module], tolerance: float) -> bool:
    """Return whether a packed layer gives the same products, for one token and for several."""
    states_MI = torch.linspace(-1, 1, 5 * layer.in_features, dtype=layer.weight.dtype).view(5, -1)
    try:
        packed, parts = pack(layer), (states_MI[:1], states_MI)
        return all(deviation(packed(part_MI), layer(part_MI)) <= tolerance for part_MI in parts)
    except (AttributeError, RuntimeError, TypeError):
        return False  # an operator is missing or takes other arguments


def deviation(ours: Tensor, theirs: Tensor) -> float:
    """Return |ours - theirs| / |theirs|, in norms. It is NaN if either tensor has a NaN."""
    ours, theirs = ours.double(), theirs.double()
    return float((ours - theirs).norm() / theirs.norm())
