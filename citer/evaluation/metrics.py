"""Confidence intervals of shares, and frontiers: values between their points, and resamples."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt

import numpy as np
from scipy.special import ndtri

CONFIDENCE = 0.95
RESAMPLES = 1000
SEED = 17


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


def resamples(in_task_Q: np.ndarray) -> np.ndarray:
    """Return drawn_RQ: how often each resample draws each question of `in_task_Q`.

    Row 0 is the sample itself. All methods use the same resamples of the questions, so that their
    differences have intervals of their own (B. Efron, The Annals of Statistics 7, 1979, 1-26).
    """
    rng = np.random.default_rng(SEED)
    drawn_RQ = rng.multinomial(in_task_Q.sum(), in_task_Q / in_task_Q.sum(), size=RESAMPLES)
    return np.vstack([in_task_Q, drawn_RQ])


def interval(value_R: np.ndarray) -> tuple[float, float, float]:
    """Return the sample's value, and the percentile interval of the resamples.

    An end beside a resample without a finite value is infinite or NaN.
    """
    tail = (1 - CONFIDENCE) / 2
    with np.errstate(invalid="ignore"):  # the difference of two infinite values
        low, high = np.quantile(value_R[1:], (tail, 1 - tail))
    return float(value_R[0]), float(low), float(high)


@dataclass(frozen=True)
class Frontier:
    """The points of a method's T rules that no mix of two others beats, in each of R resamples.

    This is the non-decreasing convex hull of RouterBench (arXiv 2403.12031), in order of cost. The
    places after its last point repeat that. Between two points it is linear: a mix of two rules,
    each for a part of the questions, reaches the points between them.
    """

    cost_RT: np.ndarray
    right_RT: np.ndarray  # right answers: their number or their share

    @classmethod
    def of(cls, cost_RT: np.ndarray, right_RT: np.ndarray) -> "Frontier":
        """Build the frontier of T rules in any order."""
        order_RT = np.lexsort((-right_RT, cost_RT))
        cost_RT, right_RT = (np.take_along_axis(each, order_RT, 1) for each in (cost_RT, right_RT))
        place_R1 = np.zeros((len(cost_RT), 1), int)
        places = [place_R1]
        for _ in range(1, cost_RT.shape[1]):
            rise_RT = right_RT - np.take_along_axis(right_RT, place_R1, 1)
            dearer_RT = cost_RT - np.take_along_axis(cost_RT, place_R1, 1)
            slope_RT = np.divide(rise_RT, dearer_RT, out=np.zeros_like(rise_RT), where=rise_RT > 0)
            steepest_R1 = slope_RT.argmax(1)[:, None]
            place_R1 = np.where(slope_RT.max(1)[:, None] > 0, steepest_R1, place_R1)
            places.append(place_R1)
        place_RT = np.hstack(places)
        return cls(*(np.take_along_axis(each, place_RT, 1) for each in (cost_RT, right_RT)))

    def cost_for(self, right_R: np.ndarray) -> np.ndarray:
        """Return cost_R: the least cost for so many right answers, infinite if none reaches it."""
        reached_RT = self.right_RT >= right_R[:, None]
        after_R1 = reached_RT.argmax(1)[:, None]
        before_R1 = np.maximum(after_R1 - 1, 0)
        cost_R1 = _between(right_R[:, None], self.right_RT, self.cost_RT, before_R1, after_R1)
        return np.where(reached_RT.any(1), cost_R1[:, 0], np.inf)

    def right_for(self, cost_R: np.ndarray) -> np.ndarray:
        """Return right_R: the most right answers for a cost, -inf below the least cost."""
        before_R1 = (self.cost_RT <= cost_R[:, None]).sum(1)[:, None] - 1
        after_R1 = np.minimum(before_R1 + 1, self.cost_RT.shape[1] - 1)
        right_R1 = _between(cost_R[:, None], self.cost_RT, self.right_RT, before_R1, after_R1)
        return np.where(before_R1 < 0, -np.inf, right_R1)[:, 0]


def _between(
    at_R1: np.ndarray,
    from_RT: np.ndarray,
    to_RT: np.ndarray,
    before_R1: np.ndarray,
    after_R1: np.ndarray,
) -> np.ndarray:
    """Map values of one axis to the other, linearly between the points at two places."""
    low_R1, high_R1 = (np.take_along_axis(from_RT, each, 1) for each in (before_R1, after_R1))
    start_R1, end_R1 = (np.take_along_axis(to_RT, each, 1) for each in (before_R1, after_R1))
    gap_R1 = high_R1 - low_R1
    share_R1 = np.divide(at_R1 - low_R1, gap_R1, out=np.zeros_like(gap_R1), where=gap_R1 > 0)
    return start_R1 + share_R1 * (end_R1 - start_R1)
