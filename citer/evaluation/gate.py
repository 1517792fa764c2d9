"""Champion or challenger: may a new router take the place of the one that serves?"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from citer.evaluation.metrics import resampled_means


class Graded(NamedTuple):
    """One test question, answered by a router's rule; bytes moved at batch 1."""

    correct: bool
    bytes: float


Outcomes = Mapping[str, Graded]  # by problem_id


class Decision(NamedTuple):
    promote: bool
    reason: str  # one sentence, with the numbers that decided


@dataclass(frozen=True)
class Gate:
    """The rule's numbers: how much accuracy may be lost, and how sure one must be (1 - delta)."""

    margin: float
    delta: float
    resamples: int
    seed: int

    def first(self, challenger: Outcomes, llm_alone: Outcomes, *, certified: bool) -> Decision:
        """No champion yet: the bound of its rule must hold, for fewer bytes than the LLM's."""
        if not certified:
            return Decision(False, "no champion yet, but no cheaper rule keeps the promised bound")
        common = _common(challenger, llm_alone)
        if not common:
            return Decision(False, "no champion yet, and no test question to price")
        share = _bytes(challenger, common) / _bytes(llm_alone, common)
        if share >= 1:
            return Decision(False, f"no champion yet, but its bytes are {share:.3f} of the LLM's")
        reason = f"no champion yet, the bound of its rule holds and its bytes are {share:.3f}"
        return Decision(True, f"{reason} of the LLM's on {len(common)} questions")

    def against(self, challenger: Outcomes, champion: Outcomes) -> Decision:
        """Paired on the questions that both answered: not inferior, and no dearer."""
        common = _common(challenger, champion)
        if not common:
            return Decision(False, "no question in common with the champion's, nothing to compare")
        low, mean = self._difference(challenger, champion, common)
        share = _bytes(challenger, common) / _bytes(champion, common)
        found = (
            f"on {len(common)} common questions accuracy differs by {mean:+.4f} "
            f"(at least {low:+.4f} at confidence {1 - self.delta:g}, margin {self.margin:g}) "
            f"for {share:.3f} of the champion's bytes"
        )
        if low < -self.margin:
            return Decision(False, f"may be less accurate: {found}")
        if share > 1:
            return Decision(False, f"moves more bytes: {found}")
        return Decision(True, f"not less accurate and no dearer: {found}")

    def _difference(
        self, challenger: Outcomes, champion: Outcomes, common: list[str]
    ) -> tuple[float, float]:
        """One-sided lower bound (paired bootstrap) and mean of the difference in accuracy."""
        gains = [float(challenger[key].correct) - champion[key].correct for key in common]
        means = resampled_means(gains, self.resamples, self.seed)
        return float(np.quantile(means, self.delta)), float(np.mean(gains))


def _common(one: Outcomes, other: Outcomes) -> list[str]:
    return sorted(one.keys() & other.keys())


def _bytes(outcomes: Outcomes, keys: list[str]) -> float:
    return sum(outcomes[key].bytes for key in keys)
