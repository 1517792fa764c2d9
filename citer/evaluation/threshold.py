"""The promise: a rule whose routed answers are rarely wrong where the LLM's are right."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from scipy.special import betaincinv

from citer.rule import LLM, Rule


@dataclass(frozen=True)
class Candidate:
    """A rule as validation saw it; `discordant`: the LLM right, the routed answer wrong."""

    rule: Rule
    n: int  # questions
    discordant: int
    llm_fraction: float
    cost: float  # bytes at batch 1, relative to the LLM alone


@dataclass(frozen=True)
class Threshold:
    """The chosen rule; P(LLM right, routed wrong) <= `bound` at confidence 1 - `delta`.

    Not `certified`: nothing cheaper than the LLM keeps the promise, and the LLM alone keeps it
    trivially.
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


Chosen = Mapping[str, Threshold]  # by the method's name


def cheapest(*thresholds: Threshold) -> Threshold:
    """Of those that keep the promise the one of least cost; the first of equals."""
    return min(thresholds, key=lambda threshold: threshold.cost)


def upper_bound(errors: int, questions: int, delta: float) -> float:
    """Clopper-Pearson: the exact one-sided upper bound of a share at confidence 1 - delta."""
    if errors == questions:
        return 1.0
    return float(betaincinv(errors + 1, questions - errors, 1 - delta))


def choose(candidates: Iterable[Candidate], epsilon: float, delta: float) -> Threshold:
    """The cheapest rule that keeps the promise, by a fixed-sequence test.

    `candidates` come safest (highest τ or ρ) first, an order that nothing seen on validation may
    change; the first whose bound exceeds epsilon ends the search, so that the promise holds at
    1 - delta for all tested together.
    """
    chosen = Threshold(LLM, epsilon, delta, 0, 0, 0.0, False, 1.0, 1.0)
    for seen in candidates:
        bound = upper_bound(seen.discordant, seen.n, delta)
        if bound > epsilon:
            break
        if seen.cost < chosen.cost:
            chosen = Threshold(
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
