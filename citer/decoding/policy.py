"""Who writes the next token: a score for the SLM's own, and the rules for visits and audits.

A *visit* is a call of the LLM. It has not yet read what the SLM wrote since the last one, the
*pending* tokens, and reads them in the forward that writes its own: an *audit* looks at what it
would have written in the place of each. Three policies that are known are points of this family:

    CITER (arXiv 2502.01976)                        visit: score < τ          no audit, β = 0
    speculative decoding (arXiv 2211.17192), greedy  visit: every γ tokens     β = 1
    BiLD (arXiv 2302.07863)                          visit: a fixed threshold  a fixed rejection
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

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
Visits = Literal["score", "risk", "every"]


@dataclass(frozen=True, order=True)
class Rule:
    """When the LLM is visited, and what it then thinks of the pending tokens.

    `visit` by `score`: the SLM's token scores below `at` (τ), and the LLM writes that one instead;
    at 0 the LLM, at 1 the SLM is never run. By `risk`: the product of the pending tokens' scores
    falls below `at` (ρ). `every`: `at` (γ) tokens are pending.

    The first pending token that the LLM gives less than `beta` times the probability of its own
    choice is rolled back with all after it, and the LLM's takes its place; without one the LLM
    writes the next token. At 0 nothing is rolled back. At 1 answers end with a visit, and are
    the LLM's own, token for token.
    """

    visit: Visits
    at: float
    beta: float = 0.0

    @property
    def asks_slm(self) -> bool:
        return (self.visit, self.at) != ("score", 1.0)

    @property
    def ends_audited(self) -> bool:
        return self.beta == 1

    def withdraws(self, score: float) -> bool:
        """Whether a token of this score is not even written."""
        return self.visit == "score" and score < self.at

    def due(self, risk: float, pending: int) -> bool:
        """Whether so many pending tokens, their scores' product `risk`, call for a visit."""
        if self.visit == "risk":
            return risk < self.at
        return self.visit == "every" and pending >= self.at


@dataclass(frozen=True)
class Policy:
    """A rule, and who scores the SLM's tokens for it."""

    scorer: Scorer
    rule: Rule


def always_slm(view: StepView) -> Tensor:
    return torch.full_like(view.position_N, HIGHEST, dtype=torch.float32)


def routed(router: Router, rule: Rule) -> Policy:
    """The router reads the SLM's last hidden state."""
    return Policy(lambda view: router.score(view.hidden_NH), rule)


def citer(tau: float) -> Rule:
    return Rule("score", tau)


SLM_ALONE = Policy(always_slm, citer(0.0))
LLM_ALONE = Policy(always_slm, citer(1.0))
