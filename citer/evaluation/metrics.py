"""What outcomes say: intervals over questions, and readings of a frontier between its points."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95


def resampled_means(values_Q: Sequence[float], resamples: int, seed: int) -> NDArray[np.float64]:
    """The bootstrap over questions: means_R of `resamples` draws of Q values with replacement.

    How often each distinct value is drawn is multinomial: no question is drawn one by one. For a
    paired bootstrap of two methods, pass the differences question by question.
    """
    values_K, counts_K = np.unique(np.asarray(values_Q, dtype=np.float64), return_counts=True)
    rng = np.random.default_rng(seed)
    drawn_RK = rng.multinomial(len(values_Q), counts_K / len(values_Q), size=resamples)
    return drawn_RK @ values_K / len(values_Q)


def interval(values_Q: Sequence[float], resamples: int, seed: int) -> tuple[float, float]:
    """The percentile interval of the mean at 95 %."""
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(resampled_means(values_Q, resamples, seed), (tail, 1 - tail))
    return float(low), float(high)


def value_at(fraction: float, fractions: Sequence[float], values: Sequence[float]) -> float:
    """`values` read at an LLM fraction, linear between the neighbouring points."""
    order = np.argsort(fractions, kind="stable")
    return float(np.interp(fraction, np.asarray(fractions)[order], np.asarray(values)[order]))


def fraction_for(
    target: float, fractions: Sequence[float], accuracies: Sequence[float]
) -> float | None:
    """The least LLM fraction at which the frontier, linear between points, reaches `target`.

    None where it never does.
    """
    points = sorted(zip(fractions, accuracies, strict=True))
    if points[0][1] >= target:
        return points[0][0]
    for (f0, a0), (f1, a1) in pairwise(points):
        if a1 >= target:
            return f0 + (f1 - f0) * (target - a0) / (a1 - a0)
    return None
