"""Policies: a rule (`citer.rule`) with the scorer that it uses."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from citer.errors import InputError
from citer.models.features import features
from citer.models.router import HIGHEST, Head, Router
from citer.rule import LLM, SLM, Rule


@dataclass(frozen=True)
class StepView:
    """The input of a scorer: N sequences for which the SLM drafts the next token."""

    hidden_NH: Tensor
    logits_NV: Tensor  # of sampled requests: see `Drafts`
    seed_N: Tensor  # int64, a stable hash of the request's key
    position_N: Tensor  # int64, index of the token in the answer

    @cached_property
    def feature_NF(self) -> Tensor:
        return features(self.hidden_NH, self.logits_NV)


Scorer = Callable[[StepView], Tensor]  # returns score_N; on a GPU it is captured, see `Read`


@dataclass(frozen=True)
class Policy:
    """A rule and the scorer of the SLM's tokens."""

    scorer: Scorer
    rule: Rule


def always_slm(view: StepView) -> Tensor:
    return torch.full_like(view.position_N, HIGHEST, dtype=torch.float32)


def routed(router: Router, rule: Rule) -> Policy:
    return Policy(ScoredBy(head_for(router, rule)), rule)


def head_for(router: Router, rule: Rule) -> Head:
    """Choose the head for a rule (see `head_name`)."""
    return router.heads[head_name(router.heads, rule)]


def head_name(heads: Collection[str], rule: Rule) -> str:
    """Return the name of a rule's head: `agree` for the LLM's own answer, `stand` for all others.

    Raises InputError if a router with these `heads` lacks it.
    """
    name = "agree" if rule.exact else "stand"
    if name not in heads:
        raise InputError(f"rule `{rule}`: the router has no head `{name}`, only {', '.join(heads)}")
    return name


@dataclass(frozen=True)
class ScoredBy:
    """Scores by a router's head."""

    head: Head

    def __call__(self, view: StepView) -> Tensor:
        return self.head.score(view.feature_NF)


SLM_ALONE, LLM_ALONE = Policy(always_slm, SLM), Policy(always_slm, LLM)
