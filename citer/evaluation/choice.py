"""The promise: P(routed wrong | LLM right) <= epsilon.

It counts only the questions that the LLM answers right. A share of all questions would be small
for every rule where the LLM is rarely right, and would promise nothing.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from scipy.special import betaincinv

from citer.rule import LLM, Rule


@dataclass(frozen=True)
class Candidate:
    """A rule on validation: `n` questions that the LLM answers right, `discordant` of them lost.

    A question is lost where the routed answer is wrong.
    """

    rule: Rule
    n: int
    discordant: int
    llm_fraction: float
    cost: float  # bytes at batch 1, relative to the LLM alone


@dataclass(frozen=True)
class ChosenRule:
    """The chosen rule; P(routed wrong | LLM right) <= `bound` at confidence 1 - `delta`.

    `n` and `discordant` are those of `Candidate`. Not `certified`: nothing cheaper than the LLM
    keeps the promise, and the LLM alone keeps it trivially.
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


Chosen = Mapping[str, ChosenRule]  # by the method's name


def cheapest(*rules: ChosenRule) -> ChosenRule:
    """Of those that keep the promise the one of least cost; the first of equals."""
    return min(rules, key=lambda rule: rule.cost)


def upper_bound(errors: int, questions: int, delta: float) -> float:
    """The one-sided upper bound of a share at confidence 1 - delta; 1 without questions.

    Clopper and Pearson's, which is exact (Biometrika 26, 1934, 404-413).
    """
    if errors == questions:
        return 1.0
    return float(betaincinv(errors + 1, questions - errors, 1 - delta))


def least_questions(epsilon: float, delta: float) -> int:
    """How many questions the LLM must answer right for any rule to be certified."""
    return bisect_left(range(2**40), True, key=lambda n: upper_bound(0, n, delta) <= epsilon)


def choose(candidates: Iterable[Candidate], epsilon: float, delta: float) -> ChosenRule:
    """The cheapest rule that keeps the promise, by a fixed-sequence test.

    `candidates` come safest (highest τ or ρ) first, an order that nothing seen on validation may
    change; the first whose bound exceeds epsilon ends the search, so that the promise holds at
    1 - delta for all tested together.
    """
    chosen = ChosenRule(LLM, epsilon, delta, 0, 0, 0.0, False, 1.0, 1.0)
    for seen in candidates:
        bound = upper_bound(seen.discordant, seen.n, delta)
        if bound > epsilon:
            break
        if seen.cost < chosen.cost:
            chosen = ChosenRule(
                rule=seen.rule,
                epsilon=epsilon,
                delta=delta,
                n=seen.n,
                discordant=seen.discordant,
                bound=bound,
                certified=True,
                llm_fraction=seen.llm_fraction,
                cost=seen.cost,
            )
    return chosen
