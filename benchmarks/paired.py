"""The answers of a study's methods to the same questions, by resamples of them."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from citer.evaluation.cost import Batch, Prices, Trace
from citer.evaluation.metrics import fraction_for
from citer.evaluation.paired import Frontier
from citer.evaluation.sweep import Run
from citer.rule import Rule


@dataclass(frozen=True)
class Outcomes:
    """A method's answers to Q questions under T rules, from the SLM alone to the LLM alone.

    The methods below evaluate R resamples: resample r holds question q `drawn_RQ[r, q]` times.
    """

    rules: Sequence[Rule]
    prices: Sequence[Prices]
    traces: Sequence[Sequence[Trace]]  # by rule, then by question
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
            [run.prices for run in runs],
            [[result.trace for result in row] for row in rows],
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

    def cost_of_exact(self, drawn_RQ: np.ndarray) -> np.ndarray:
        """Return cost_R: the cost of the cheapest rule whose answers all equal the LLM's."""
        differing_RT = drawn_RQ @ ~self.equals_llm_TQ.T
        return np.where(differing_RT == 0, self.costs(drawn_RQ), np.inf).min(1)

    def cheapest(self, share: float | None, in_task_Q: np.ndarray) -> int:
        """Return the index of the cheapest rule with `share` of the LLM's accuracy.

        If `share` is None, all its answers must equal the LLM's.
        """
        right_TQ = self.equals_llm_TQ if share is None else self.correct_TQ
        right_T = right_TQ @ in_task_Q.astype(int)
        enough_T = right_T >= (share or 1) * right_T[-1]
        [cost_T] = self.costs(in_task_Q[None, :])
        return int(np.where(enough_T, cost_T, np.inf).argmin())

    def moved(self, rule: int, in_task_Q: np.ndarray, batch: Batch) -> int:
        """Return the bytes that the rule with this index moves at a batch size."""
        pairs = zip(self.traces[rule], in_task_Q, strict=True)
        traces = [trace for trace, in_task in pairs if in_task]
        return self.prices[rule].moved(*batch.work(traces))


def _joined(first: Any, second: Any) -> Any:
    """Concatenate the rules of two methods. In both, the models alone come first and last."""
    if isinstance(first, np.ndarray):
        return np.concatenate([first[:-1], second[1:]])
    return [*first[:-1], *second[1:]]


def _moved(run: Run, trace: Trace) -> int:
    return run.prices.moved(trace.slm, trace.llm)


def shown(value: tuple[float, float, float], sign: str = "") -> str:
    mean, low, high = (f"{number:{sign}.4f}" for number in value)
    return f"{mean} [{low}, {high}]"
