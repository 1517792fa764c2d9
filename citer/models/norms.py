"""RMS norms on a GPU: one kernel each. transformers launches seven, which take longer to start."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import rms_norm

from citer.models.rounding import deviation

HALVES = (torch.bfloat16, torch.float16)
TOLERANCE = 1e-2  # the largest deviation: transformers rounds twice, the kernel once


class FusedNorm(nn.Module):
    """Replaces a norm of transformers for inference."""

    def __init__(self, norm: Any) -> None:
        super().__init__()
        self.weight, self.eps = norm.weight, norm.variance_epsilon

    def forward(self, states: Tensor) -> Tensor:
        """Norm the last dimension."""
        return rms_norm(states, self.weight.shape, self.weight, self.eps)


def fuse_norms(network: nn.Module) -> None:
    """Replace the norms of a network on a GPU in half precision, but those of other kinds."""
    for parent in network.modules():
        for name, norm in parent.named_children():
            if hasattr(norm, "variance_epsilon") and norm.weight.is_cuda and fusible(norm):
                setattr(parent, name, FusedNorm(norm))


@torch.inference_mode()
def fusible(norm: Any) -> bool:
    """Return whether a norm is in half precision, and `FusedNorm` computes the same."""
    weight_H = norm.weight
    states_H = torch.linspace(-1, 2, len(weight_H), dtype=weight_H.dtype, device=weight_H.device)
    same = deviation(FusedNorm(norm)(states_H), norm(states_H)) <= TOLERANCE
    return weight_H.dtype in HALVES and same
