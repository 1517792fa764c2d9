"""The router: from the SLM's last hidden state to the probability that its token may stand."""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn

# The largest score: below 1 in float32, so that at tau = 1 every token is the LLM's.
HIGHEST = 1 - 2**-20


class RouterMLP(nn.Module):
    """H → 2H → H → 1 with batch norm, ReLU and dropout (CITER, arXiv 2502.01976)."""

    def __init__(self, hidden_size: int, dropout: float) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.dropout = dropout
        self.layers = nn.Sequential(
            *_block(hidden_size, 2 * hidden_size, dropout),
            *_block(2 * hidden_size, hidden_size, dropout),
            nn.Linear(hidden_size, 1),
        )

    def forward(self, hidden_NH: Tensor) -> Tensor:
        """hidden_NH → logit_N, before calibration."""
        return self.layers(hidden_NH).squeeze(-1)


def _block(inputs: int, outputs: int, dropout: float) -> list[nn.Module]:
    return [nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs), nn.ReLU(), nn.Dropout(dropout)]


@dataclass(frozen=True)
class Router:
    """A trained network with its Platt calibration; without a network, "always the SLM"."""

    mlp: RouterMLP | None
    slope: float = 1.0
    intercept: float = 0.0

    @property
    def weight_bytes(self) -> int:
        return sum(weight.nbytes for weight in self.mlp.parameters()) if self.mlp else 0

    def to(self, device: torch.device) -> Self:
        if self.mlp:
            self.mlp.to(device)
        return self

    def score(self, hidden_NH: Tensor) -> Tensor:
        """hidden_NH → score_N in float32, in [0, HIGHEST]."""
        if self.mlp is None:
            return torch.full(hidden_NH.shape[:1], HIGHEST, device=hidden_NH.device)
        logit_N = self.mlp(hidden_NH.to(next(self.mlp.parameters()).dtype))
        return torch.sigmoid(self.slope * logit_N + self.intercept).clamp(max=HIGHEST)
