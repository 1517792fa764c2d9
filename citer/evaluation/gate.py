"""Decide whether a new router (the challenger) replaces the serving one (the champion)."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple

from scipy.optimize import brentq
from scipy.special import ndtri

from citer.evaluation.choice import least_questions
from citer.evaluation.measure import Conditions

UNCOMPARED = (
    "{difference}, so the two cannot be compared; to promote it anyway, run `citer promote VERSION`"
)


class Graded(NamedTuple):
    """One test question, answered by a router's rule; bytes moved at batch 1."""

    correct: bool
    bytes: float


GradedAnswers = Mapping[str, Graded]  # by problem_id


class Difference(NamedTuple):
    """A difference in accuracy, or fidelity, on common questions.

    `gained` questions are correct by the first version only, `lost` by the other only. Each bound
    alone has confidence 1 - delta.
    """

    questions: int
    gained: int
    lost: int
    mean: float
    low: float
    high: float


def difference(one: GradedAnswers, other: GradedAnswers, delta: float) -> Difference:
    """Subtract the accuracy of `other` from that of `one`, on the questions that both answered."""
    both = in_common(one, other)
    gained = sum(one[key].correct > other[key].correct for key in both)
    lost = sum(one[key].correct < other[key].correct for key in both)
    return Difference(
        len(both),
        gained,
        lost,
        (gained - lost) / len(both),
        least_difference(gained, lost, len(both), delta),
        -least_difference(lost, gained, len(both), delta),
    )


def least_difference(gained: int, lost: int, questions: int, delta: float) -> float:
    """Bound P(gained) - P(lost) from below at confidence 1 - delta.

    Tango's score bound for paired proportions (Statistics in Medicine 17, 1998, 891-908), with a
    continuity correction of half a question. With delta = 5 % the corrected bound is too high in at
    most 4.8 % of cases, the uncorrected one in up to 6.8 % (true difference -2 %, up to a fifth
    gained, 10 to 1000 questions).
    """
    if lost == questions:
        return -1.0
    quantile = ndtri(1 - delta)

    def excess(least: float) -> float:
        """Return by how many questions the gain exceeds its bound for a true difference `least`."""
        half = (gained + lost - least * (2 * questions - gained + lost)) / 2
        root = sqrt(half**2 + 2 * questions * lost * least * (1 - least))
        p_lost = (half + root) / (2 * questions)  # maximum likelihood, given `least`
        variance = questions * (2 * p_lost + least * (1 - least))
        observed = gained - lost - 0.5
        return observed - questions * least - quantile * sqrt(max(variance, 0.0))

    return float(brentq(excess, -1, 1))


def in_common(one: GradedAnswers, other: GradedAnswers) -> list[str]:
    return sorted(one.keys() & other.keys())


class Answered(NamedTuple):
    """A version's test answers, and its bytes per answer at the gate's batch, if known.

    `bound` is the upper bound of its rule's risk at the gate's confidence.
    """

    graded: GradedAnswers
    batched: float | None = None
    bound: float = 0.0


class Decision(NamedTuple):
    promote: bool
    reason: str  # one sentence, with the numbers that decided


@dataclass(frozen=True)
class Gate:
    """The conditions of a promotion, by the settings of these names in params.yaml.

    Bytes are compared at batch size `batch`, under the best schedule. `conditions` are those of the
    challenger's study. If they say fidelity, the floor does not apply.
    """

    margin: float
    byte_margin: float
    batch: int
    delta: float
    epsilon: float
    llm_floor: float
    conditions: Conditions

    def decide(
        self,
        challenger: Answered,
        champion: Answered | None,
        llm_alone: Answered,
        *,
        certified: bool,
        champion_conditions: Conditions | None = None,
        set_aside: str = "",
    ) -> Decision:
        """Decide whether to promote the challenger, whose rule must be `certified` on validation.

        A champion is set aside if it does not keep the promise of this gate, or for the reason
        `set_aside`. The challenger is not promoted if it cannot be compared with another one.
        """
        if broken := self._broken_promise(challenger, llm_alone.graded, certified):
            return Decision(False, broken)
        if champion is None:
            return self._first(challenger, llm_alone, "no champion yet")
        if not set_aside and champion_conditions != self.conditions:
            measured = f"measured by {self.conditions}, the champion by {champion_conditions}"
            return Decision(False, UNCOMPARED.format(difference=measured))
        if reason := set_aside or self.outdated(champion.bound):
            return self._first(challenger, llm_alone, f"the champion {reason}")
        if not in_common(challenger.graded, champion.graded):
            apart = "no test question in common with the champion's"
            return Decision(False, UNCOMPARED.format(difference=apart))
        return self._beside_champion(challenger, champion)

    def outdated(self, bound: float) -> str:
        """Say that a champion with this bound does not keep the promise; empty if it does."""
        if bound <= self.epsilon:
            return ""
        return (
            f"does not keep the promise that is asked now (bound {bound:.3f} at confidence "
            f"{1 - self.delta:g}, expected at most {self.epsilon:g}) and is set aside"
        )

    def _counted(self, challenger: GradedAnswers, llm_alone: GradedAnswers) -> list[bool]:
        """Return whether the challenger is right, on each question that the promise counts."""
        counts = self.conditions.measure.counts
        common = in_common(challenger, llm_alone)
        return [challenger[key].correct for key in common if counts(llm_alone[key].correct)]

    def _broken_promise(
        self, challenger: Answered, llm_alone: GradedAnswers, certified: bool
    ) -> str:
        """Return how the promise is broken, or an empty string if it is kept."""
        if not certified or challenger.bound > self.epsilon:
            return "no rule cheaper than the LLM keeps the promised bound"
        measure, common = self.conditions.measure, in_common(challenger.graded, llm_alone)
        kept = self._counted(challenger.graded, llm_alone)
        if not kept or len(kept) / len(common) < self.llm_floor:
            least = f"{self.llm_floor:.0%}" if self.llm_floor else "one"
            right = f"the LLM is right on {len(kept)} of {len(common)} test questions"
            return f"{right}, expected at least {least}"
        lost = kept.count(False)
        if lost / len(kept) > self.epsilon:
            wrong = measure.on_test.format(lost=lost, n=len(kept))
            return f"{wrong}, expected at most {self.epsilon:.1%}"
        return ""

    def _first(self, challenger: Answered, llm_alone: Answered, why: str) -> Decision:
        """Without a champion to compare with, require enough questions, and fewer bytes.

        `why` says why there is none.
        """
        enough = least_questions(self.epsilon, self.delta)
        counted = len(self._counted(challenger.graded, llm_alone.graded))
        if counted < enough:
            few = self.conditions.measure.counted.format(n=counted)
            return Decision(False, f"{why}: on test {few}, expected at least {enough}")
        share, where = self._moved(challenger, llm_alone)
        moved = f"it moves {share:.3f} of the LLM's bytes {where}"
        if 0 < share < 1:
            return Decision(True, f"{why}: its rule keeps the promised bound, and {moved}")
        return Decision(False, f"{why}: {moved}")

    def _beside_champion(self, challenger: Answered, champion: Answered) -> Decision:
        """Require equal accuracy and equal bytes within the margins, and one of them no worse."""
        measure = self.conditions.measure
        gap = difference(challenger.graded, champion.graded, self.delta)
        share, where = self._moved(challenger, champion)
        numbers = (
            f"on {gap.questions} common questions {measure.name} differs by {gap.mean:+.4f} "
            f"(at least {gap.low:+.4f} at confidence {1 - self.delta:g}, margin {self.margin:g}); "
            f"it moves {share:.3f} of the champion's bytes {where} (margin {self.byte_margin:g})"
        )
        if gap.low < -self.margin:
            return Decision(False, f"may be less {measure.better}: {numbers}")
        if not 0 < share <= 1 + self.byte_margin:
            return Decision(False, f"moves more bytes: {numbers}")
        if share > 1 and gap.mean < 0:
            return Decision(False, f"less {measure.better}, and more bytes: {numbers}")
        return Decision(True, f"not worse by more than the margins: {numbers}")

    def _moved(self, one: Answered, other: Answered) -> tuple[float, str]:
        """Return the bytes of `one` by those of `other`, and where they were counted.

        This is at the gate's batch, or if it cannot be done, at batch 1. A cost in a batch belongs
        to a whole test set, so both must have answered the same one. At batch 1 a question has a
        cost of its own, and the common questions are compared.
        """
        alike = one.graded.keys() == other.graded.keys()
        if self.batch > 1 and alike and one.batched and other.batched:
            return one.batched / other.batched, f"at batch {self.batch}"
        common = in_common(one.graded, other.graded)
        own, others = (sum(each.graded[k].bytes for k in common) for each in (one, other))
        why_not = (
            "a version has no cost at this batch size" if alike else "the test questions differ"
        )
        because = f" (not at batch {self.batch}: {why_not})" if self.batch > 1 else ""
        return own / others, f"at batch 1, on {len(common)} common questions{because}"
