"""Policies: a rule (`citer.rule`) with the scorer that it uses."""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from citer.errors import InputError
from citer.models.router import HIGHEST, Head, Router, StepView
from citer.rule import LLM, SLM, Rule

Scorer = Callable[[StepView], Tensor]  # returns score_N; on a GPU it is captured, see `Read`


@dataclass(frozen=True)
class Policy:
    """A rule and the scorer of the SLM's tokens."""

    scorer: Scorer
    rule: Rule


def always_slm(view: StepView) -> Tensor:
    return torch.full_like(view.position_N, HIGHEST, dtype=torch.float32)


def low_entropy(view: StepView) -> Tensor:
    """Return score_N = 1 - H / log V. H is the entropy of the SLM's next-token distribution."""
    logprob_NV = view.logits_NV.log_softmax(-1)
    entropy_N = -(logprob_NV.exp() * logprob_NV).sum(-1)
    return (1 - entropy_N / math.log(logprob_NV.shape[-1])).clamp(0, HIGHEST).float()


def top_probability(view: StepView) -> Tensor:
    """Return score_N, the largest probability of the SLM's next-token distribution."""
    return view.logits_NV.softmax(-1).amax(-1).clamp(0, HIGHEST).float()


# Scorers without training, as `Rule.by` names them.
CERTAINTIES: Mapping[str, Scorer] = {"entropy": low_entropy, "probability": top_probability}


def routed(router: Router, rule: Rule) -> Policy:
    return Policy(scorer_for(router, rule), rule)


def scorer_for(router: Router, rule: Rule) -> Scorer:
    """Choose the scorer of a rule. Raises InputError as `head_name` does."""
    if name := head_name(router.heads, rule):
        return router.heads[name]
    return CERTAINTIES.get(rule.by, always_slm)


def head_name(heads: Collection[str], rule: Rule) -> str | None:
    """Return the name of the head that a rule needs, or None if it needs none.

    A rule that names no scorer uses `agree` for the LLM's own answer, else `stand`; one that visits
    every γ tokens needs no score. Raises InputError if a router with these `heads` lacks the head.
    """
    if rule.draft == "lookup" or not rule.asks_slm:
        return None
    name = rule.by or ("agree" if rule.exact else "stand")
    if name in CERTAINTIES or (rule.visit == "every" and not rule.by):
        return None
    if name not in heads:
        known = ", ".join([*heads, *CERTAINTIES])
        raise InputError(f"rule `{rule}`: no scorer `{name}`; expected one of {known}")
    return name


def weight_bytes(scorer: Scorer) -> int:
    """Return how many bytes a scorer reads for each token."""
    return scorer.weight_bytes if isinstance(scorer, Head) else 0


SLM_ALONE, LLM_ALONE = Policy(always_slm, SLM), Policy(always_slm, LLM)
