"""Confidence intervals of shares, and values between the points of a frontier."""

from collections.abc import Sequence
from itertools import pairwise
from math import sqrt

from scipy.special import ndtri

CONFIDENCE = 0.95


def share_interval(successes: int, trials: int) -> tuple[float, float]:
    """Wilson's score interval of a share at 95 %.

    Its width is positive even if all trials succeed or none does.

    E. B. Wilson, Journal of the American Statistical Association 22, 1927, 209-212.
    """
    z = float(ndtri((1 + CONFIDENCE) / 2))
    centre = (successes + z**2 / 2) / (trials + z**2)
    variance = successes * (trials - successes) / trials + z**2 / 4
    half = z * sqrt(variance) / (trials + z**2)
    return max(0.0, centre - half), min(1.0, centre + half)


def fraction_for(
    target: float, fractions: Sequence[float], accuracies: Sequence[float]
) -> float | None:
    """Find the least LLM fraction at which the frontier, linear between points, reaches `target`.

    Returns None if the frontier stays below it.
    """
    points = sorted(zip(fractions, accuracies, strict=True))
    if points[0][1] >= target:
        return points[0][0]
    for (f0, a0), (f1, a1) in pairwise(points):
        if a1 >= target:
            return f0 + (f1 - f0) * (target - a0) / (a1 - a0)
    return None
