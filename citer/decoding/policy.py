"""Who writes the next token: a rule (`citer.rule`), and who scores the SLM's tokens for it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from citer.models.features import features
from citer.models.router import HIGHEST, Head, Router
from citer.rule import Rule


class StepView(NamedTuple):
    """What a scorer may look at, for N answers about to get their next token from the SLM."""

    hidden_NH: Tensor
    logits_NV: Tensor
    seed_N: Tensor  # int64, a stable hash of the request's key
    position_N: Tensor  # int64, index of the token in the answer


Scorer = Callable[[StepView], Tensor]  # score_N; captured with the forward: see `Read`


@dataclass(frozen=True)
class Policy:
    """A rule, and who scores the SLM's tokens for it."""

    scorer: Scorer
    rule: Rule


def always_slm(view: StepView) -> Tensor:
    return torch.full_like(view.position_N, HIGHEST, dtype=torch.float32)


def routed(router: Router, rule: Rule) -> Policy:
    return Policy(scored_by(head_for(router, rule)), rule)


def head_for(router: Router, rule: Rule) -> Head:
    """Where the answer is to be the LLM's own, its agreement counts; else what is harmless may."""
    return router.agree if rule.exact else router.stand


def scored_by(head: Head) -> Scorer:
    return lambda view: head.score(features(view.hidden_NH, view.logits_NV))


SLM_ALONE = Policy(always_slm, Rule("score", 0.0))
LLM_ALONE = Policy(always_slm, Rule("score", 1.0))
