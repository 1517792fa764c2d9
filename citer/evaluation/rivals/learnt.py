"""Rivals that train a head like a router's on the preference questions, with other labels or loss.

CITER-S (arXiv 2502.01976) is CITER without rollouts: every contested token goes to the LLM.

Co-LLM (arXiv 2403.03870) learns to defer by the likelihood of the references. The next token is
from the LLM with probability φ, else from the SLM. Which of the two wrote a token of a reference is
unknown, so that the loss is the marginal likelihood. Two things differ from the paper. The SLM is
not trained with the head, so that all methods share one SLM. The head is a router's MLP instead of
a linear layer, so that only labels and loss differ from CITER's.
"""

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from citer.decoding.policy import ScoredBy
from citer.evaluation.methods import Kind, Style
from citer.evaluation.rivals.rival import (
    Learnt,
    Lessons,
    NothingToLearnError,
    Rival,
    Setting,
    by_score,
)
from citer.evaluation.sweep import Line, Method

STANDS = ("slm_right", "same_wrong")  # cases in which CITER-S lets the SLM's token stand


def labels(case_N: np.ndarray) -> np.ndarray:
    """Return label_N of the truth table, with 0 for a contested token."""
    return np.isin(case_N, STANDS)


def citer_s_rival(setting: Setting, lessons: Lessons) -> Rival:
    """Train on every token but those of audited answers, which have no case."""
    case_N = lessons.tokens.case_N
    if "contested" not in case_N:
        raise NothingToLearnError("no contested tokens")
    given_N = case_N != "audited"
    learnt = lessons.train("citer_s", given_N, labels(case_N[given_N]), None)
    return _by_head("citer_s", learnt, setting, Style(Kind.RIVAL, "#F0E442", "X"))


def marginal_loss(logit_B: Tensor, logprob_B2: Tensor) -> Tensor:
    """Return the mean of -log((1 - φ) p_slm(y) + φ p_llm(y)) in nats, with φ = sigmoid(-logit).

    `logprob_B2` has log p_slm(y) and log p_llm(y) of the reference's token y.
    """
    chosen_B2 = torch.stack([logsigmoid(logit_B), logsigmoid(-logit_B)], 1)
    return -(chosen_B2 + logprob_B2).logsumexp(1).mean()


def co_llm_rival(setting: Setting, lessons: Lessons) -> Rival:
    """Train on every token. The score is 1 - φ."""
    tokens = lessons.tokens
    logprob_N2 = np.stack([tokens.slm_logprob_N, tokens.llm_logprob_N], 1)
    every_N = np.ones(len(logprob_N2), bool)
    learnt = lessons.train("co_llm", every_N, logprob_N2, marginal_loss)
    return _by_head("co_llm", learnt, setting, Style(Kind.RIVAL, "#000000", "p"))


def _by_head(name: str, learnt: Learnt, setting: Setting, style: Style) -> Rival:
    return Rival(
        Line(Method.of(name, ScoredBy(learnt.head), style), by_score(setting.learnt_taus(learnt)))
    )
