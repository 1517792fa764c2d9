"""Choose a rule that keeps the promise P(routed wrong | LLM right) <= epsilon.

The promise counts only questions that the LLM answers right. A share of all questions would promise
nothing if the LLM is rarely right, because it would be small for every rule. Stored answers are the
evidence. Nothing is decoded here, so another promise needs no other answers.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import TYPE_CHECKING, NamedTuple

import pyarrow.compute as pc
from scipy.special import betaincinv

from citer.decoding.answer import Counts
from citer.evaluation.cost import Batch
from citer.evaluation.measure import ACCURACY, Measure
from citer.evaluation.methods import Row
from citer.evaluation.points import Findings, rule_of
from citer.rule import LLM, Rule

if TYPE_CHECKING:  # the engine with its models takes seconds to import
    from citer.evaluation.sweep import Run

FIRST = 0.8  # of delta, for the first rule that is tested; the rest is for rules after a failure
MOST = 0.2  # share of held-out questions that a rule may lose and still be tested
CONFIDENCE = 0.95  # that a rule loses more than epsilon of the held-out questions
HELD_OUT = "preference"  # the split whose held-out questions order the rules


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
class ChosenRule(Candidate):
    """A method's chosen rule with its certificate: its results on validation, and a bound.

    At confidence 1 - `delta` the rule's risk is at most `epsilon`. `bound` is the upper bound of
    its risk at this confidence, as if no other rule had been tested; 0 for an exact rule that lost
    nothing. If no rule cheaper than the LLM keeps the promise, `rule` is the LLM alone, which keeps
    it trivially, and `certified` is False.
    """

    epsilon: float
    delta: float
    bound: float
    certified: bool
    deployed: bool = False  # whether it was chosen among the rules of all methods


Chosen = Mapping[str, ChosenRule]  # by method


def deployed(chosen: Chosen) -> str:
    """Return the method whose rule is deployed."""
    return next(method for method, each in chosen.items() if each.deployed)


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

    An exact rule needs no test, since its answers are the LLM's own: the promise of the others does
    not cover it. In half precision near ties may change some of its answers, and it fails if it
    loses more than a share epsilon.
    """
    passed: list[bool] = []
    level = FIRST * delta
    part = (1 - FIRST) * delta / max(1, len(candidates) - 1)
    for each in candidates:
        kept = upper_bound(each.discordant, each.n, level) <= epsilon
        passed.append(kept or (each.rule.exact and each.discordant <= epsilon * each.n))
        level = level * passed[-1] + part
    return passed


def choose(passed: Iterable[Candidate], epsilon: float, delta: float) -> ChosenRule:
    """Choose the cheapest certified rule; the LLM alone if none is cheaper than that."""
    cheaper = (each for each in passed if each.cost < 1)
    best = min(cheaper, key=lambda each: each.cost, default=None)
    if best is None:
        return ChosenRule(LLM, 0, 0, 1.0, 1.0, epsilon, delta, 0.0, False)
    is_own = best.rule.exact and not best.discordant
    return ChosenRule(
        **vars(best),
        epsilon=epsilon,
        delta=delta,
        bound=0.0 if is_own else upper_bound(best.discordant, best.n, delta),
        certified=True,
    )


class Step(NamedTuple):
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

    Validation has no part in the order, so a rule that passes may hand its share of delta on to the
    next (Learn then Test, arXiv 2110.01052). To order settings on other data and then test them in
    sequence is Pareto Testing (arXiv 2210.07913). The safest rule comes first: it loses the fewest
    held-out questions, and of equals it is the dearest. A rule that passes costs no confidence, but
    one that fails costs most of it. `docs/studies.md` compares this way with others.

    Returns the numbers of the rules. Those that lose more than epsilon of the held-out questions at
    confidence 95 % are left out.
    """
    kept = [upper_bound(each.n - each.discordant, each.n, 1 - CONFIDENCE) for each in seen]
    safe = [n for n, share in enumerate(kept) if 1 - share <= epsilon]
    return sorted(safe, key=lambda n: (seen[n].discordant, -seen[n].cost))


def worth_testing(family: Sequence[Candidate]) -> list[int]:
    """Return the numbers of the rules that validation must answer, whatever the promise is.

    The family has the rules of one scorer and one acceptance. A rule is left out if another one is
    cheaper and loses no more held-out questions, or if it loses more than `MOST` of them. Of rules
    that do the same there, only the first is kept.
    """
    kept = [number for number, seen in enumerate(family) if _is_worth(seen, family)]
    alike = {(family[n].cost, family[n].discordant): n for n in reversed(kept)}
    return sorted(alike.values())


def _is_worth(seen: Candidate, family: Sequence[Candidate]) -> bool:
    lose_no_more = (each for each in family if seen.n and each.discordant <= seen.discordant)
    beaten = any(each.cost < seen.cost for each in lose_no_more)
    return not beaten and seen.discordant <= MOST * seen.n


def choose_each(
    steps: Sequence[Step], methods: Sequence[str], epsilon: float, delta: float
) -> Chosen:
    """Choose each method's cheapest certified rule, and the rule to deploy.

    The steps are tested in their order: those of each method by themselves, so that no method loses
    its rule by the failures of others. The rule to deploy is the cheapest that passes the one test
    of all steps, the first of equals. It stands for its method; if none passes, for the LLM.
    """

    def of(method: str, tested: Iterable[Step]) -> ChosenRule:
        return choose((s.validation for s in tested if s.method == method), epsilon, delta)

    def passed(tested: Sequence[Step]) -> Iterable[Step]:
        return compress(tested, certified([s.validation for s in tested], epsilon, delta))

    together = list(passed(steps))
    best = min(methods, key=lambda method: of(method, together).cost)
    alone = {m: of(m, passed([s for s in steps if s.method == m])) for m in methods}
    last = of(best, together)
    return alone | {best if last.certified else "llm": replace(last, deployed=True)}


Tried = tuple[str, Rule]  # a method with one of its rules


def judged(
    found: Findings, split: str, measure: Measure, schedules: Sequence[Batch]
) -> dict[Tried, Candidate]:
    """Compare the stored answers by all rules on a split with the LLM's own.

    The cost is that at the place where the rules will serve, which has these schedules.
    """
    answers = defaultdict[Tried, dict[str, Row]](dict)
    for row in found.outcomes.filter(pc.field("split") == split).to_pylist():
        answers[_tried(row)][row["problem_id"]] = row
    counts = {key: measure.counts(row["correct"]) for key, row in answers["llm", LLM].items()}
    seen = {}
    for point in found.points:
        if (point["split"], point["task"]) == (split, "all"):
            tried = _tried(point)
            # Which held-out answers of the LLM end may depend on the device, at near ties.
            kept = [row["correct"] for key, row in answers[tried].items() if counts.get(key)]
            cost = min(point[batch.column] for batch in schedules)
            own = len(kept), kept.count(False), point["llm_fraction"], cost
            seen[tried] = Candidate(tried[1], *own)
    return seen


def compared(run: "Run", llm: "Run", schedules: Sequence[Batch]) -> Candidate:
    """Compare a rule's run on held-out questions with the LLM's own."""
    both = zip(run.results, llm.results, strict=True)
    kept = [own.correct for own, other in both if other.correct]
    cost = min(run.moved(batch) / llm.moved(batch) for batch in schedules)
    total = Counts.total(own.counts for own in run.results)
    fraction = total.llm_tokens / total.tokens
    return Candidate(run.rule, len(kept), kept.count(False), fraction, cost)


def _tried(row: Row) -> Tried:
    return row["method"], rule_of(row)


def choose_rules(
    found: Findings, measure: Measure, schedules: Sequence[Batch], epsilon: float, delta: float
) -> tuple[Chosen, list[Step]]:
    """Choose a rule for each method, and return also the sequence of tests.

    If no rule of any method was worth a test, the LLM alone is chosen.
    """
    tried = list(dict.fromkeys(_tried(row) for row in found.candidates.points))
    # They are graded against an answer, the LLM's own where none is given.
    before = judged(found, HELD_OUT, ACCURACY, schedules)
    seen = [before.get(each, Candidate(each[1], 0, 0, 0.0, 0.0)) for each in tried]
    tested = judged(found, "validation", measure, schedules)
    steps = [Step(tried[n][0], seen[n], tested[tried[n]]) for n in sequence(seen, epsilon)]
    methods = list(dict.fromkeys(method for method, _ in tried)) or ["llm"]
    return choose_each(steps, methods, epsilon, delta), steps


def too_few(
    llm_right: Iterable[bool], measure: Measure, epsilon: float, delta: float
) -> str | None:
    """Say that validation cannot certify a rule that is tested first, even if it loses nothing."""
    counted, enough = sum(map(measure.counts, llm_right)), least_questions(epsilon, delta)
    if counted >= enough:
        return None
    return (
        f"validation: {measure.counted.format(n=counted)}, too few to certify a rule "
        f"that may change an answer: evaluate.epsilon {epsilon:g} needs {enough:,}"
    )
