"""The answers of a study's methods to the same questions, by resamples of them."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from citer.evaluation.cost import Trace
from citer.evaluation.metrics import fraction_for
from citer.evaluation.paired import Frontier
from citer.evaluation.sweep import Run
from citer.rule import Rule

EXACT = "exact"


@dataclass(frozen=True)
class Outcomes:
    """A method's answers to Q questions under T rules, from the SLM alone to the LLM alone.

    The methods below evaluate R resamples: resample r holds question q `drawn_RQ[r, q]` times.
    """

    rules: Sequence[Rule]
    correct_TQ: np.ndarray
    llm_tokens_TQ: np.ndarray
    tokens_TQ: np.ndarray
    bytes_TQ: np.ndarray  # moved at batch 1
    equals_llm_TQ: np.ndarray  # whether the answer equals the LLM's, token for token

    @classmethod
    def of(cls, runs: Sequence[Run]) -> "Outcomes":
        rows = [run.results for run in runs]
        digest_TQ = np.array([[result.digest for result in row] for row in rows])
        return cls(
            [run.rule for run in runs],
            np.array([[result.correct for result in row] for row in rows], float),
            np.array([[result.counts.llm_tokens for result in row] for row in rows], float),
            np.array([[result.counts.tokens for result in row] for row in rows], float),
            np.array([[_moved(run, r.trace) for r in run.results] for run in runs], float),
            digest_TQ == digest_TQ[-1],
        )

    def joined(self, other: "Outcomes") -> "Outcomes":
        """Return one method with the rules of both."""
        names = [field.name for field in fields(self)]
        return Outcomes(*(_joined(getattr(self, name), getattr(other, name)) for name in names))

    def needed(self, target: str, drawn_RQ: np.ndarray) -> np.ndarray:
        """Return what a target takes in each resample.

        `f95` is the LLM fraction for 95 % of the LLM's accuracy, `c95` the cost for it, both
        between rules, `c95 tried` the cost of a rule that was tried, and `exact` the cost of a rule
        whose answers are the LLM's own. Others than 95 are read alike.
        """
        if target == EXACT:
            return self.cost_of_exact(drawn_RQ)
        name, _, tried = target.partition(" ")
        share = float(name[1:]) / 100
        if name.startswith("f"):
            return self.fraction_for(share, drawn_RQ)
        return self.cost_of_tried(share, drawn_RQ) if tried else self.cost_for(share, drawn_RQ)

    def fraction_for(self, share: float, drawn_RQ: np.ndarray) -> np.ndarray:
        """Return fraction_R: the LLM fraction for `share` of the LLM's accuracy, interpolated."""
        right_RT = drawn_RQ @ self.correct_TQ.T
        fraction_RT = (drawn_RQ @ self.llm_tokens_TQ.T) / (drawn_RQ @ self.tokens_TQ.T)
        points = zip(fraction_RT, right_RT, strict=True)
        return np.array(
            [
                fraction_for(share * right_T[-1], fraction_T, right_T)
                for fraction_T, right_T in points
            ]
        )

    def costs(self, drawn_RQ: np.ndarray) -> np.ndarray:
        """Return cost_RT: each rule's bytes at batch 1, relative to the LLM alone."""
        moved_RT = drawn_RQ @ self.bytes_TQ.T
        return moved_RT / moved_RT[:, -1:]

    def cost_for(self, share: float, drawn_RQ: np.ndarray) -> np.ndarray:
        """Return cost_R: the least cost for `share` of the LLM's accuracy.

        Interpolates linearly between the efficient rules; no cheaper rule is as accurate. A mix
        of two rules, each for a part of the questions, reaches the points between them.
        """
        right_RT = drawn_RQ @ self.correct_TQ.T
        return Frontier.of(self.costs(drawn_RQ), right_RT).cost_for(share * right_RT[:, -1])

    def cost_of_tried(self, share: float, drawn_RQ: np.ndarray) -> np.ndarray:
        """Return cost_R: the cost of the cheapest rule with `share` of the LLM's accuracy."""
        right_RT = drawn_RQ @ self.correct_TQ.T
        reached_RT = right_RT >= share * right_RT[:, -1:]
        return np.where(reached_RT, self.costs(drawn_RQ), np.inf).min(1)

    def cost_of_exact(self, drawn_RQ: np.ndarray) -> np.ndarray:
        """Return cost_R: the cost of the cheapest rule whose answers all equal the LLM's."""
        differing_RT = drawn_RQ @ ~self.equals_llm_TQ.T
        return np.where(differing_RT == 0, self.costs(drawn_RQ), np.inf).min(1)


def _joined(first: Any, second: Any) -> Any:
    """Concatenate the rules of two methods. In both, the models alone come first and last."""
    if isinstance(first, np.ndarray):
        return np.concatenate([first[:-1], second[1:]])
    return [*first[:-1], *second[1:]]


def _moved(run: Run, trace: Trace) -> int:
    return run.prices.moved(trace.slm, trace.llm)
