"""Rivals that visit the LLM where the SLM's next-token distribution has a high entropy.

With an audit of the pending tokens they are like BiLD (Big Little Decoder, arXiv 2302.07863).
BiLD's fallback is a threshold on the largest probability. Its rollback compares the SLM's token
with the LLM's distribution by a fixed distance; here an audit by odds has this role.
"""

import math

from torch import Tensor

from citer.decoding.policy import StepView
from citer.evaluation.methods import Kind, Style
from citer.evaluation.rivals.rival import Rival, Setting, by_score
from citer.evaluation.sweep import Line, Method
from citer.models.router import HIGHEST
from citer.rule import Rule, When


def low_entropy(view: StepView) -> Tensor:
    """Return score_N = 1 - H / log V. H is the entropy of the SLM's next-token distribution."""
    logprob_NV = view.logits_NV.log_softmax(-1)
    entropy_N = -(logprob_NV.exp() * logprob_NV).sum(-1)
    return (1 - entropy_N / math.log(logprob_NV.shape[-1])).clamp(0, HIGHEST).float()


def entropy_rival(setting: Setting) -> Rival:
    """Make the rival that visits the LLM if the SLM's entropy is high."""
    method = Method("entropy", low_entropy, style=Style(Kind.RIVAL, "#009E73", "^"))
    return Rival(Line(method, by_score(setting.taus(low_entropy))))


def bild_rival(setting: Setting) -> Rival:
    """Make `entropy` with the audits of audited routing at each visit.

    It also visits by the product of the pending tokens' scores. BiLD itself has neither the entropy
    nor the product, but both make it a stronger rival.
    """
    method = Method("bild", low_entropy, style=Style(Kind.RIVAL, "#009E73", "<"))
    visits: list[tuple[When, float]] = [("score", tau) for tau in setting.taus(low_entropy)]
    visits += [("risk", risk) for risk in setting.params.risks]
    audits = setting.params.audits
    return Rival(Line(method, [Rule(*visit, audit) for audit in audits for visit in visits]))
