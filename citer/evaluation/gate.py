"""Champion or challenger: may a new router take the place of the one that serves?"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

from scipy.optimize import brentq
from scipy.special import ndtri


class Graded(NamedTuple):
    """One test question, answered by a router's rule; bytes moved at batch 1."""

    correct: bool
    bytes: float


GradedAnswers = Mapping[str, Graded]  # by problem_id
UNCOMPARED = (
    "no test question in common with the champion's, so nothing can be compared; "
    "`citer promote VERSION` decides"
)


class Difference(NamedTuple):
    """In accuracy, on common questions; either bound at confidence 1 - delta by itself."""

    questions: int
    mean: float
    low: float
    high: float


class Decision(NamedTuple):
    promote: bool
    reason: str  # one sentence, with the numbers that decided


@dataclass(frozen=True)
class Gate:
    """What a promotion takes.

    `epsilon`: the promised share of the LLM's right answers that may be lost. `llm_floor`: the
    share of the test questions that the LLM must have right. `margin`: how much of the champion's
    accuracy may be lost, at confidence 1 - `delta`.
    """

    margin: float
    delta: float
    epsilon: float
    llm_floor: float

    def decide(
        self,
        challenger: GradedAnswers,
        champion: GradedAnswers | None,
        llm_alone: GradedAnswers,
        *,
        certified: bool,
    ) -> Decision:
        """Whether the challenger is promoted.

        Every challenger must keep its promise: its rule is `certified` on validation, and of the
        test questions that the LLM has right, `llm_floor` of all at least, no more than epsilon
        are answered wrong. A first router must also move fewer bytes than the LLM alone. Beside a
        champion it must be as accurate and move no more bytes on the test questions of both;
        where there are none, nothing is promoted.
        """
        broken = self._broken_promise(challenger, llm_alone, certified)
        if broken:
            return Decision(False, broken)
        if champion is None:
            return _first(challenger, llm_alone)
        if not _common(challenger, champion):
            return Decision(False, UNCOMPARED)
        return self._beside_champion(challenger, champion)

    def _broken_promise(
        self, challenger: GradedAnswers, llm_alone: GradedAnswers, certified: bool
    ) -> str:
        """What is wrong with the promise; empty where it is kept."""
        if not certified:
            return "no rule that is cheaper than the LLM keeps the promised bound"
        common = _common(challenger, llm_alone)
        kept = [challenger[key].correct for key in common if llm_alone[key].correct]
        if not kept or len(kept) / len(common) < self.llm_floor:
            least = f"{self.llm_floor:.0%}" if self.llm_floor else "one"
            found = f"the LLM is right on {len(kept)} of {len(common)} test questions"
            return f"{found}, expected at least {least}"
        lost = kept.count(False)
        if lost / len(kept) > self.epsilon:
            found = f"wrong on {lost} of the {len(kept)} test questions that the LLM has right"
            return f"{found}, expected at most {self.epsilon:.1%}"
        return ""

    def _beside_champion(self, challenger: GradedAnswers, champion: GradedAnswers) -> Decision:
        """Paired on the questions that both answered: not inferior, and no dearer on them."""
        found = difference(challenger, champion, self.delta)
        share = _relative_bytes(challenger, champion)
        said = (
            f"on {found.questions} common questions accuracy differs by {found.mean:+.4f} "
            f"(at least {found.low:+.4f} at confidence {1 - self.delta:g}, margin {self.margin:g}) "
            f"for {share:.3f} of the champion's bytes"
        )
        if found.low < -self.margin:
            return Decision(False, f"may be less accurate: {said}")
        if share > 1:
            return Decision(False, f"moves more bytes: {said}")
        return Decision(True, f"not less accurate and no dearer: {said}")


def _first(challenger: GradedAnswers, llm_alone: GradedAnswers) -> Decision:
    """Beside no champion: it must move fewer bytes than the LLM."""
    share, asked = _relative_bytes(challenger, llm_alone), len(_common(challenger, llm_alone))
    found = f"its bytes are {share:.3f} of the LLM's on {asked} questions"
    if share >= 1:
        return Decision(False, f"no champion yet: {found}")
    return Decision(True, f"no champion yet: the bound of its rule holds and {found}")


def difference(one: GradedAnswers, other: GradedAnswers, delta: float) -> Difference:
    """The accuracy of `one` less that of `other`, paired question by question."""
    common = _common(one, other)
    gained = sum(one[key].correct > other[key].correct for key in common)
    lost = sum(one[key].correct < other[key].correct for key in common)
    return Difference(
        len(common),
        (gained - lost) / len(common),
        least_difference(gained, lost, len(common), delta),
        -least_difference(lost, gained, len(common), delta),
    )


def least_difference(gained: int, lost: int, questions: int, delta: float) -> float:
    """The lower bound of P(gained) - P(lost) at confidence 1 - delta.

    Tango's score bound for paired proportions (Statistics in Medicine 17, 1998, 891-908), corrected
    for continuity by half a question: it is then too high in at most 4.8 % where delta is 5 % (the
    true difference -2 %, up to a fifth gained, 10 to 1000 questions); uncorrected in up to 6.8 %.
    """
    if lost == questions:
        return -1.0
    quantile = ndtri(1 - delta)

    def excess(least: float) -> float:
        """In questions, of what was seen over what a difference of `least` makes likely."""
        half = (gained + lost - least * (2 * questions - gained + lost)) / 2
        root = sqrt(half**2 + 2 * questions * lost * least * (1 - least))
        p_lost = (half + root) / (2 * questions)  # the likeliest, given the difference
        variance = questions * (2 * p_lost + least * (1 - least))
        seen = gained - lost - 0.5
        return seen - questions * least - quantile * sqrt(max(variance, 0.0))

    return float(brentq(excess, -1, 1))


def _common(one: GradedAnswers, other: GradedAnswers) -> list[str]:
    return sorted(one.keys() & other.keys())


def _relative_bytes(one: GradedAnswers, other: GradedAnswers) -> float:
    """On the questions that both answered."""
    common = _common(one, other)
    return sum(one[key].bytes for key in common) / sum(other[key].bytes for key in common)
