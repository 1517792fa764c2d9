"""What stored answers say about the rules of a router, and the rules that they choose.

Nothing is decoded here, so another promise needs no other answers.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Self

import pyarrow.compute as pc

from citer.decoding.answer import Counts
from citer.evaluation.choice import Candidate, Chosen, Step, choose_each, least_questions, sequence
from citer.evaluation.cost import Batch
from citer.evaluation.measure import ACCURACY, Measure
from citer.evaluation.methods import Row
from citer.evaluation.points import Findings, rule_of
from citer.rule import LLM, Rule

if TYPE_CHECKING:  # the engine with its models takes seconds to import
    from citer.evaluation.sweep import Run

HELD_OUT = "preference"  # the split whose held-out questions order the rules


class Tried(NamedTuple):
    """A rule of a method."""

    method: str
    rule: Rule


LLM_ALONE = Tried("llm", LLM)
Answers = Mapping[Tried, Mapping[str, Row]]  # rows of the OUTCOME table, by problem_id


class Evidence(NamedTuple):
    """What the stored answers of a split say about rules, at the place where they will serve."""

    answers: Answers
    points: Mapping[Tried, Row]
    measure: Measure
    schedules: Sequence[Batch]

    @classmethod
    def of(cls, found: Findings, split: str, measure: Measure, schedules: Sequence[Batch]) -> Self:
        answers: dict[Tried, dict[str, Row]] = {}
        for row in found.outcomes.filter(pc.field("split") == split).to_pylist():
            answers.setdefault(_tried(row), {})[row["problem_id"]] = row
        whole = [row for row in found.points if (row["split"], row["task"]) == (split, "all")]
        return cls(answers, {_tried(row): row for row in whole}, measure, schedules)

    def candidate(self, tried: Tried) -> Candidate:
        """Compare a rule's answers with the LLM's own answers to the same questions."""
        rows, llm = self.answers.get(tried, {}), self.answers.get(LLM_ALONE, {})
        if not rows:
            return Candidate(tried.rule, 0, 0, 0.0, 0.0)
        counts = self.measure.counts
        kept = [row["correct"] for key, row in rows.items() if counts(llm[key]["correct"])]
        point = self.points[tried]
        cost = price(point, self.schedules)
        return Candidate(tried.rule, len(kept), kept.count(False), point["llm_fraction"], cost)


def price(point: Row, schedules: Sequence[Batch]) -> float:
    """Return the cost of a point under the best of the schedules."""
    return float(min(point[batch.column] for batch in schedules))


def compared(run: "Run", llm: "Run", schedules: Sequence[Batch]) -> Candidate:
    """Compare a rule's run on held-out questions with the LLM's own."""
    both = zip(run.results, llm.results, strict=True)
    kept = [own.correct for own, other in both if ACCURACY.counts(other.correct)]
    cost = min(run.moved(batch) / llm.moved(batch) for batch in schedules)
    total = Counts.total(own.counts for own in run.results)
    fraction = total.llm_tokens / total.tokens
    return Candidate(run.rule, len(kept), kept.count(False), fraction, cost)


def _tried(row: Row) -> Tried:
    return Tried(row["method"], rule_of(row))


def choose_rules(
    found: Findings,
    measure: Measure,
    schedules: Sequence[Batch],
    epsilon: float,
    delta: float,
) -> tuple[Chosen, list[Step]]:
    """Choose a rule for each method by its findings and the LLM's.

    All rules are tested in one sequence, the returned steps. The held-out questions decide its
    order, so the promises hold at confidence 1 - delta for all methods together. If no rule of any
    method was worth a test, the LLM alone is chosen.
    """
    tried = list(dict.fromkeys(_tried(row) for row in found.candidates.points))
    # They are graded against an answer, the LLM's own where none is given.
    before = Evidence.of(found, HELD_OUT, ACCURACY, schedules)
    seen = [before.candidate(each) for each in tried]
    validation = Evidence.of(found, "validation", measure, schedules)
    steps = [
        Step(tried[n].method, seen[n], validation.candidate(tried[n]))
        for n in sequence(seen, epsilon)
    ]
    methods = list(dict.fromkeys(each.method for each in tried)) or [LLM_ALONE.method]
    return choose_each(steps, methods, epsilon, delta), steps


def too_few(
    llm_right: Iterable[bool], measure: Measure, epsilon: float, delta: float
) -> str | None:
    """Say that validation cannot certify any rule, even if a rule loses nothing."""
    counted, enough = sum(map(measure.counts, llm_right)), least_questions(epsilon, delta)
    if counted >= enough:
        return None
    return (
        f"validation: {measure.counted.format(n=counted)}, too few to certify any rule: "
        f"evaluate.epsilon {epsilon:g} needs {enough:,}"
    )
