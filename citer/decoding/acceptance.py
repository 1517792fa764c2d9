"""Acceptance rules: whether an audit lets a pending token stand that is not the LLM's choice.

The LLM's forward gives a number for each pending token, and `accept` compares it with the rule's
threshold. A *criterion* computes the number on the device.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from citer.models.features import divergence, judge_features, rank
from citer.models.pair import LanguageModel
from citer.models.router import HIGHEST, Head
from citer.models.vocabulary import Vocabulary
from citer.rule import Rule

SURE = 0.9  # probability of the LLM's choice above which `kl` accepts no other token


class Drafted(NamedTuple):
    """The SLM, and its `features` where it drafted M tokens, in float64."""

    slm: LanguageModel
    feature_MF: Tensor


@dataclass(frozen=True)
class Pending:
    """The input of a criterion: M positions, with the sequence's token at each.

    `llm_logits_MV` are restricted to the `vocabulary`, and perturbed if the request samples.
    `by_slm` is None if no criterion reads the SLM.
    """

    token_M: Tensor
    llm_MH: Tensor
    llm_logits_MV: Tensor
    vocabulary: Vocabulary
    by_slm: Drafted | None

    @property
    def drafted(self) -> Drafted:
        assert self.by_slm, "the judge has no SLM"
        return self.by_slm

    @cached_property
    def p_MV(self) -> Tensor:
        """The LLM's log-probabilities."""
        return self.llm_logits_MV.log_softmax(-1)

    @cached_property
    def q_MV(self) -> Tensor:
        """The SLM's log-probabilities, on the LLM's device."""
        slm, feature_MF = self.drafted
        hidden_MH = feature_MF[:, : slm.hidden_size]
        logits_MV = slm.logits(hidden_MH.to(slm.device, slm.dtype))
        q_MV = self.vocabulary.choices(logits_MV).log_softmax(-1)
        return q_MV.to(self.p_MV.device, self.p_MV.dtype)


Criterion = Callable[[Pending], Tensor]  # returns number_M; on a GPU it is captured, see `Read`


def ranked(pending: Pending) -> Tensor:
    """The rank of the token among the LLM's: the number of `top k`."""
    return rank(pending.token_M, pending.llm_logits_MV)


def masked_kl(pending: Pending) -> Tensor:
    """KL(LLM ‖ SLM) in nats, or infinity where the LLM is sure of its choice.

    After JuDi (arXiv 2601.04766). There, speculative sampling decides where the LLM's largest
    probability exceeds 0.9. Here, decoding is greedy, so only the LLM's choice is accepted there.
    """
    kl_M = divergence(pending.p_MV, pending.q_MV)
    return kl_M.masked_fill(pending.p_MV.amax(-1).exp() > SURE, torch.inf)


@dataclass(frozen=True)
class JudgedBy:
    """The score of the head `judge`: the probability that the token may stand."""

    head: Head

    def __call__(self, pending: Pending) -> Tensor:
        slm, slm_MF = pending.drafted
        feature_MF = judge_features(slm_MF, pending.llm_MH, pending.p_MV, pending.token_M)
        # The head is with the SLM, the LLM may be on other devices (`pair.llm_device_map`).
        return self.head.score(feature_MF.to(slm.device)).to(feature_MF.device)


def criterion_of(rule: Rule, judge: Head | None) -> Criterion | None:
    """Return the criterion of an acceptance rule, or None for `audit`: every verdict has odds."""
    if rule.by == "judge":
        assert judge is not None, "a policy that judges without its head"
        return JudgedBy(judge)
    return {"kl": masked_kl, "top": ranked}.get(rule.by)


def reads_slm(criterion: Criterion) -> bool:
    """Return whether a criterion needs the SLM's features of each pending token."""
    return criterion is not ranked


def accept(rule: Rule, number: float) -> bool:
    """Return whether a token with this number (or odds) stands that is not the LLM's choice.

    A tie is rejected at `audit 1` and `top 1`: the LLM chose the other token. NaN is rejected.
    """
    if rule.by == "top":
        return max(number, 2) <= rule.audit
    if rule.by == "kl":
        return number <= rule.audit
    return min(number, HIGHEST) >= rule.audit
