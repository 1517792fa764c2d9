"""Rivals: methods without training, which a router must beat.

Each function of `RIVALS` makes one method with the rules to try on test. To add a rival, write
such a function and add it to the list. Reports take its name, kind, colour and marker from there.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np
from torch import Tensor

from citer.config import EvaluateParams
from citer.decoding.policy import Scorer, StepView, always_slm
from citer.evaluation.methods import Kind, Style
from citer.evaluation.sweep import Line, Method
from citer.models.noise import GOLDEN, mixed, shifted
from citer.models.router import HIGHEST
from citer.rule import Rule


def low_entropy(view: StepView) -> Tensor:
    """Return score_N = 1 - H / log V. H is the entropy of the SLM's next-token distribution."""
    logprob_NV = view.logits_NV.log_softmax(-1)
    entropy_N = -(logprob_NV.exp() * logprob_NV).sum(-1)
    return (1 - entropy_N / math.log(logprob_NV.shape[-1])).clamp(0, HIGHEST).float()


def random(seed: int) -> Scorer:
    """Make a scorer of uniform scores: with `score τ` the LLM writes a share τ of the tokens.

    A score is a hash of the seed, the request and the position. It does not depend on the batch or
    on the order of requests.
    """

    return partial(_uniform, seed)


def _uniform(seed: int, view: StepView) -> Tensor:
    counter_N = mixed(view.seed_N ^ seed) + GOLDEN * view.position_N
    return (shifted(mixed(counter_N), 40).float() * 2.0**-24).clamp(max=HIGHEST)


def entropy_line(params: EvaluateParams, scores: Sequence[float]) -> Line:
    """Make the rival that visits the LLM if the SLM's entropy is high.

    It has a rule for every target LLM fraction.
    """
    method = Method("entropy", low_entropy, style=Style(Kind.RIVAL, "#009E73", "^"))
    return Line(method, by_score(quantiles(scores, _fractions(params))))


def random_line(params: EvaluateParams, scores: Sequence[float]) -> Line:
    """Make the rival that visits the LLM at random, with a rule for every third LLM fraction.

    More rules would be slow, since their answers share few tokens. They would add little, since the
    frontier is almost straight.
    """
    method = Method("random", random(params.seed), style=Style(Kind.RIVAL, "#666666", "x"))
    return Line(method, by_score(_fractions(params)[::3]))


def speculative_line(params: EvaluateParams, scores: Sequence[float]) -> Line:
    """Make greedy speculative decoding with γ drafts per visit. It gives the LLM's own answers."""
    method = Method("speculative", always_slm, style=Style(Kind.EXACT, "#E69F00", "v"))
    return Line(method, [Rule("every", gamma, audit=1) for gamma in params.gammas])


def _fractions(params: EvaluateParams) -> list[float]:
    """Return the target LLM fractions without those of the models alone."""
    return [fraction for fraction in params.llm_fractions if 0 < fraction < 1]


def by_score(taus: Iterable[float]) -> list[Rule]:
    return [Rule("score", tau) for tau in taus]


def quantiles(scores: Sequence[float], fractions: Sequence[float]) -> list[float]:
    """Return thresholds with these shares of the scores below them, midway between two scores."""
    return np.unique(np.quantile(scores, fractions, method="midpoint")).tolist()


# Each function takes the parameters of `evaluate` and the `low_entropy` of every token that the SLM
# alone writes on validation. It returns a method and its rules.
RIVALS: Sequence[Callable[[EvaluateParams, Sequence[float]], Line]] = (
    entropy_line,
    random_line,
    speculative_line,
)
