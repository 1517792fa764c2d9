"""CITER-S (arXiv 2502.01976): CITER without rollouts. Every contested token goes to the LLM."""

import numpy as np

from citer.evaluation.methods import Kind, Style
from citer.evaluation.rivals.rival import (
    Lessons,
    NothingToLearnError,
    Rival,
    Setting,
    by_score,
)
from citer.evaluation.sweep import Line, by_head

STYLE = Style(Kind.RIVAL, "#F0E442", "X")
STANDS = ("slm_right", "same_wrong")  # cases in which the SLM's token may stand


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
    method = by_head("citer_s", learnt.head, STYLE)
    return Rival(Line(method, by_score(setting.learnt_taus(learnt))))
