"""Who writes the next token: a score for the SLM's own, and the threshold below which it falls."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from citer.models.router import HIGHEST, Router


class StepView(NamedTuple):
    """What a scorer may look at, for N answers about to get their next token from the SLM."""

    hidden_NH: Tensor
    logits_NV: Tensor
    seed_N: Tensor  # int64, a stable hash of the request's key
    position_N: Tensor  # int64, index of the token in the answer


Scorer = Callable[[StepView], Tensor]


@dataclass(frozen=True)
class Policy:
    """score_N < tau: the LLM writes the token. At 0 the LLM, at 1 the SLM is never run."""

    scorer: Scorer
    tau: float


def always_slm(view: StepView) -> Tensor:
    return torch.full_like(view.position_N, HIGHEST, dtype=torch.float32)


def routed(router: Router, tau: float) -> Policy:
    """CITER (arXiv 2502.01976): the router reads the SLM's last hidden state."""
    return Policy(lambda view: router.score(view.hidden_NH), tau)


SLM_ALONE = Policy(always_slm, 0.0)
LLM_ALONE = Policy(always_slm, 1.0)
