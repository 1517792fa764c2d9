"""Choose a rule that keeps the promise P(routed wrong | LLM right) <= epsilon.

The promise counts only questions that the LLM answers right. A share of all questions would promise
nothing if the LLM is rarely right, because it would be small for every rule. If the measure is
fidelity, the LLM is right by definition, and the promise counts all questions:
P(answer differs from the LLM's) <= epsilon.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from scipy.special import betaincinv

from citer.rule import LLM, Rule

FIRST = 0.8  # of delta, for the first rule that is tested; the rest is for rules after a failure


@dataclass(frozen=True)
class Candidate:
    """A rule's results on validation, or on the held-out questions of the preference split.

    The promise counts `n` questions. The routed answer is wrong on `discordant` of them.
    """

    rule: Rule
    n: int
    discordant: int
    llm_fraction: float
    cost: float  # bytes where it will serve, relative to the LLM alone


@dataclass(frozen=True)
class ChosenRule:
    """A chosen rule with its certificate.

    The promise holds at confidence 1 - `delta` for all chosen rules together: their risk is at most
    `epsilon`. `bound` is the upper bound at this confidence of the rule's risk, taken by itself.
    `n` and `discordant` are as in `Candidate`. If no rule cheaper than the LLM keeps the promise,
    `rule` is the LLM alone, which keeps it trivially, and `certified` is False.
    """

    rule: Rule
    epsilon: float
    delta: float
    n: int
    discordant: int
    bound: float
    certified: bool
    llm_fraction: float
    cost: float


Chosen = Mapping[str, ChosenRule]  # by method


def deployed(chosen: Chosen) -> str:
    """Return the method whose rule is deployed: the cheapest on validation, the first of equals."""
    return min(chosen, key=lambda method: chosen[method].cost)


def upper_bound(errors: float, questions: int, delta: float) -> float:
    """Return an upper bound of an error rate at confidence 1 - delta. It is 1 without questions.

    This is the one-sided Clopper-Pearson bound, which is exact (Biometrika 26, 1934, 404-413).
    """
    if errors == questions:
        return 1.0
    return float(betaincinv(errors + 1, questions - errors, 1 - delta))


def least_questions(epsilon: float, delta: float) -> int:
    """Return the least number of right LLM answers that certifies a first rule which loses none."""
    return bisect_left(
        range(2**40), True, key=lambda n: upper_bound(0, n, FIRST * delta) <= epsilon
    )


def certified(candidates: Sequence[Candidate], epsilon: float, delta: float) -> list[bool]:
    """Return which rules keep the promise, by the fallback procedure.

    The candidates are tested in their order, which must not depend on the results on validation.
    The first is tested at `FIRST` delta; the rest of delta belongs to the others in equal parts. A
    rule that passes hands its level on to the next one, and a rule that fails loses it. The promise
    then holds at confidence 1 - delta for all these rules together (B. L. Wiens,
    Pharmaceutical Statistics 2, 2003, 211-215). With `FIRST` = 1 this is a fixed-sequence test,
    which ends at the first failure.

    An exact rule needs no test, since its answers are the LLM's own.
    """
    passed: list[bool] = []
    level = FIRST * delta
    part = (1 - FIRST) * delta / max(1, len(candidates) - 1)
    for each in candidates:
        kept = upper_bound(each.discordant, each.n, level) <= epsilon
        passed.append(kept or each.rule.exact)
        level = level * passed[-1] + part
    return passed


def choose(passed: Iterable[Candidate], epsilon: float, delta: float) -> ChosenRule:
    """Choose the cheapest certified rule; the LLM alone if none is cheaper than that."""
    cheaper = (each for each in passed if each.cost < 1)
    best = min(cheaper, key=lambda each: each.cost, default=None)
    if best is None:
        return ChosenRule(LLM, epsilon, delta, 0, 0, 0.0, False, 1.0, 1.0)
    return ChosenRule(
        **vars(best),
        epsilon=epsilon,
        delta=delta,
        bound=0.0 if best.rule.exact else upper_bound(best.discordant, best.n, delta),
        certified=True,
    )
