"""The router predicts from the SLM's hidden state whether the SLM's next token may stand."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import torch
from torch import Tensor, nn

from citer.storage.schema import TOP_LOGPROBS

EXTRAS = 2 + TOP_LOGPROBS  # features besides the hidden state
FEATURE = (
    "SLM hidden state after the final norm, entropy in nats, top-1 minus top-2 log-probability, "
    f"{TOP_LOGPROBS} largest log-probabilities"
)


def confidence_features(logprob_NV: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return entropy_N (nats), margin_N and top_NK, the largest log-probabilities."""
    top_NK = logprob_NV.topk(TOP_LOGPROBS).values
    entropy_N = -torch.linalg.vecdot(logprob_NV.exp(), logprob_NV)
    return entropy_N, top_NK[:, 0] - top_NK[:, 1], top_NK


def features(hidden_NH: Tensor, logits_NV: Tensor) -> Tensor:
    """Return feature_NF, with F = H + `EXTRAS`, in the precision of the logits."""
    entropy_N, margin_N, top_NK = confidence_features(logits_NV.log_softmax(-1))
    columns = [hidden_NH.to(logits_NV.dtype), entropy_N[:, None], margin_N[:, None], top_NK]
    return torch.cat(columns, 1)


@dataclass(frozen=True)
class StepView:
    """The input of a scorer: N sequences for which the SLM drafts the next token."""

    hidden_NH: Tensor
    logits_NV: Tensor  # of sampled requests: see `citer.decoding.runner.Drafts`
    seed_N: Tensor  # int64, a stable hash of the request's key
    position_N: Tensor  # int64, index of the token in the answer

    @cached_property
    def feature_NF(self) -> Tensor:
        return features(self.hidden_NH, self.logits_NV)


# The largest score. It is below 1 in float32, so that at τ = 1 the LLM writes every token.
HIGHEST = 1 - 2**-20


class RouterMLP(nn.Module):
    """F → 2H → H → 1 with batch norm, ReLU and dropout (CITER, arXiv 2502.01976, where F is H).

    F is `inputs`, by default that of `citer.models.router.features`. With H = 0 it is a logistic
    regression, by default on the `EXTRAS` only. It reads the last F features.
    """

    def __init__(self, hidden_size: int, dropout: float, inputs: int | None = None) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.dropout = dropout
        self.inputs = inputs or hidden_size + EXTRAS
        self.layers = nn.Sequential(
            *_block(self.inputs, 2 * hidden_size, dropout),
            *_block(2 * hidden_size, hidden_size, dropout),
            nn.Linear(hidden_size or self.inputs, 1),
        )

    @property
    def shape(self) -> dict[str, float]:
        """The arguments that make an MLP of this shape, without `inputs` if it is the default."""
        shape = {"hidden_size": self.hidden_size, "dropout": self.dropout}
        return shape | ({"inputs": self.inputs} if self.inputs != self.hidden_size + EXTRAS else {})

    def forward(self, feature_NF: Tensor) -> Tensor:
        """Return logit_N, before calibration."""
        return self.layers(feature_NF[:, -self.inputs :]).squeeze(-1)


def _block(inputs: int, outputs: int, dropout: float) -> list[nn.Module]:
    if not outputs:
        return []
    return [nn.Linear(inputs, outputs), nn.BatchNorm1d(outputs), nn.ReLU(), nn.Dropout(dropout)]


@dataclass(frozen=True)
class Head:
    """A trained MLP with its Platt calibration. Without an MLP, every score is HIGHEST."""

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

    def __call__(self, view: StepView) -> Tensor:
        return self.score(view.feature_NF)

    def score(self, feature_NF: Tensor) -> Tensor:
        """Return score_N in float32, in [0, HIGHEST]."""
        if self.mlp is None:
            return torch.full(feature_NF.shape[:1], HIGHEST, device=feature_NF.device)
        logit_N = self.mlp(feature_NF.to(next(self.mlp.parameters()).dtype))
        return torch.sigmoid(self.slope * logit_N + self.intercept).clamp(max=HIGHEST)


@dataclass(frozen=True)
class Router:
    """Heads by name. Each scores the SLM's next token (see `citer.decoding.policy.head_name`).

    A score of `stand`, of the small `narrow`, and of `logistic`, which does not read the hidden
    state, is the probability that the token may stand. These heads are trained on preferences in
    every iteration. The others are trained once (`citer.stages.router0`).
    """

    heads: Mapping[str, Head]

    def to(self, device: torch.device) -> Self:
        """Move every head's weights, in place."""
        for head in self.heads.values():
            head.to(device)
        return self
