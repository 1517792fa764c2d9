"""Methods compared on the same questions: readings of their frontiers, with paired intervals."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from citer.evaluation.metrics import CONFIDENCE, fraction_for
from citer.evaluation.sweep import Run

RESAMPLES = 1000
SEED = 17


@dataclass(frozen=True)
class Outcomes:
    """A method's answers to Q questions at T thresholds, from the SLM alone to the LLM alone."""

    correct_TQ: np.ndarray
    llm_tokens_TQ: np.ndarray
    tokens_TQ: np.ndarray

    @classmethod
    def of(cls, runs: Sequence[Run]) -> "Outcomes":
        rows = [run.results for run in runs]
        return cls(
            np.array([[result.correct for result in row] for row in rows], float),
            np.array([[sum(result.trace.by_llm) for result in row] for row in rows], float),
            np.array([[len(result.trace.by_llm) for result in row] for row in rows], float),
        )

    def fraction_for(self, share: float, drawn_RQ: np.ndarray) -> np.ndarray:
        """fraction_R: the LLM fraction for `share` of the LLM's accuracy, linear between points.

        Resample r holds question q `drawn_RQ[r, q]` times.
        """
        right_RT = drawn_RQ @ self.correct_TQ.T
        fraction_RT = (drawn_RQ @ self.llm_tokens_TQ.T) / (drawn_RQ @ self.tokens_TQ.T)
        points = zip(fraction_RT, right_RT, strict=True)
        return np.array(
            [
                fraction_for(share * right_T[-1], fraction_T, right_T)
                for fraction_T, right_T in points
            ]
        )


def resamples(mine_Q: np.ndarray) -> np.ndarray:
    """drawn_RQ: how often each question is drawn; row 0 is the sample itself, each of `mine` once.

    Methods that read the same resamples are compared pairwise.
    """
    rng = np.random.default_rng(SEED)
    drawn_RQ = rng.multinomial(mine_Q.sum(), mine_Q / mine_Q.sum(), size=RESAMPLES)
    return np.vstack([mine_Q, drawn_RQ])


def interval(value_R: np.ndarray) -> tuple[float, float, float]:
    """The sample's own value, and the percentile interval of the resamples."""
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(value_R[1:], (tail, 1 - tail))
    return float(value_R[0]), float(low), float(high)
