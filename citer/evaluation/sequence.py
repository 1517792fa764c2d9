"""Order the rules of all lines in one sequence, which validation then tests.

The order comes from held-out questions of the preference split. Validation has no part in it, so a
rule that passes may hand its share of delta on to the next (Learn then Test, arXiv 2110.01052). To
order settings on other data and then test them in sequence is Pareto Testing (arXiv 2210.07913).

The safest rule comes first. It loses the fewest held-out questions. If two rules lose equally many,
the dearer one comes first. A rule that passes costs no confidence, but one that fails costs most of
it. `docs/results.md` compares this way with others.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress

from citer.evaluation.choice import Candidate, Chosen, certified, choose, upper_bound

MOST = 0.2  # share of held-out questions that a rule may lose and still be tested
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Step:
    """A rule in the sequence, with its results on the held-out questions and on validation."""

    method: str
    held_out: Candidate
    validation: Candidate


def explained(steps: Sequence[Step], epsilon: float, delta: float) -> list[dict[str, object]]:
    """Return the steps as rows for people.

    `bound` is at confidence 1 - delta, for the rule by itself. A rule may have a bound of at most
    epsilon and still fail, because it is tested at its own share of delta: `passed` says so.
    """
    tested = [step.validation for step in steps]
    return [
        {
            "method": step.method,
            "rule": str(seen.rule),
            "held_out": _evidence(step.held_out),
            "validation": _evidence(seen),
            "bound": upper_bound(seen.discordant, seen.n, delta),
            "passed": passed,
        }
        for step, seen, passed in zip(steps, tested, certified(tested, epsilon, delta), strict=True)
    ]


def _evidence(seen: Candidate) -> dict[str, float]:
    return {"n": seen.n, "discordant": seen.discordant, "cost": seen.cost}


def sequence(seen: Sequence[Candidate], epsilon: float) -> list[int]:
    """Order the rules to test on validation, by their results on the held-out questions.

    Returns the numbers of the rules. Those that lose more than epsilon of the held-out questions at
    confidence 95 % are left out.
    """

    def risk(number: int) -> tuple[int, float]:
        return seen[number].discordant, -seen[number].cost

    numbers = (
        number
        for number, each in enumerate(seen)
        if _lower_bound(each.discordant, each.n) <= epsilon
    )
    return sorted(numbers, key=risk)


def worth_testing(family: Sequence[Candidate]) -> list[int]:
    """Return the numbers of the rules that validation must answer, whatever the promise is.

    The family has the rules of one scorer and one acceptance. A rule is left out if another one is
    cheaper and loses no more held-out questions, or if it loses more than `MOST` of them.
    """
    return [number for number, seen in enumerate(family) if _is_worth(seen, family)]


def _is_worth(seen: Candidate, family: Sequence[Candidate]) -> bool:
    lose_no_more = (each for each in family if seen.n and each.discordant <= seen.discordant)
    beaten = any(each.cost < seen.cost for each in lose_no_more)
    return not beaten and seen.discordant <= MOST * seen.n


def _lower_bound(errors: int, questions: int) -> float:
    """Clopper-Pearson's bound of an error rate from below."""
    return 1 - upper_bound(questions - errors, questions, 1 - CONFIDENCE)


def choose_each(
    steps: Sequence[Step], methods: Sequence[str], epsilon: float, delta: float
) -> Chosen:
    """Choose each method's cheapest certified rule, by one test of all `steps` in their order.

    The promises hold at confidence 1 - delta for all methods together.
    """
    tested = [step.validation for step in steps]
    passed = list(compress(steps, certified(tested, epsilon, delta)))
    return {
        method: choose((s.validation for s in passed if s.method == method), epsilon, delta)
        for method in methods
    }
