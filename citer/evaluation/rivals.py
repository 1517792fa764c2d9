"""Rivals: methods without training, which a router must beat.

Each function of `RIVALS` makes one method with the rules to try on test. To add a rival, write
such a function and add it to the list. Reports take its name, kind, colour and marker from there.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from citer.config import EvaluateParams
from citer.decoding.policy import Scorer, StepView, always_slm
from citer.evaluation.methods import Kind, Style
from citer.evaluation.sweep import Line, Method
from citer.models.router import HIGHEST
from citer.rule import Rule

_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)  # splitmix64's constants, as signed 64-bit integers
_FIRST = 0xBF58476D1CE4E5B9 - (1 << 64)
_SECOND = 0x94D049BB133111EB - (1 << 64)


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
    counter_N = _mix(view.seed_N ^ seed) + _GOLDEN * view.position_N
    return (_shift(_mix(counter_N), 40).float() * 2.0**-24).clamp(max=HIGHEST)


def _mix(bits_N: Tensor) -> Tensor:
    """Apply the finaliser of splitmix64 (Steele, Lea and Flood, 2014) to int64 that wraps."""
    bits_N = (bits_N ^ _shift(bits_N, 30)) * _FIRST
    bits_N = (bits_N ^ _shift(bits_N, 27)) * _SECOND
    return bits_N ^ _shift(bits_N, 31)


def _shift(bits_N: Tensor, count: int) -> Tensor:
    """Shift to the right and fill with zeros. The shift of torch keeps the sign."""
    return torch.bitwise_right_shift(bits_N, count) & ((1 << (64 - count)) - 1)


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
