"""What stored answers say about the rules of a router, and the rules that they choose.

Nothing is decoded here, so another promise needs no other answers.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from citer.evaluation.choice import Candidate, Chosen, least_questions
from citer.evaluation.measure import ACCURACY, Measure
from citer.evaluation.methods import Row, styles
from citer.evaluation.points import Findings, rule_of
from citer.evaluation.sequence import Step, choose_each, sequence
from citer.rule import LLM, Rule

HELD_OUT = "preference"  # the split whose held-out questions order the rules


class Tried(NamedTuple):
    """A rule of a method."""

    method: str
    rule: Rule


Answers = Mapping[Tried, Mapping[str, Row]]  # rows of the OUTCOME table, by problem_id


def candidate(
    rule: Rule, rows: Iterable[Row], llm_rows: Mapping[str, Row], measure: Measure
) -> Candidate:
    """Compare a rule's answers with the LLM's own answers to the same questions.

    `llm_rows` holds the LLM's outcomes by problem_id.
    """
    answered = [(row, llm_rows[row["problem_id"]]) for row in rows]
    if not answered:
        return Candidate(rule, 0, 0, 0.0, 0.0)
    kept = [row["correct"] for row, llm in answered if measure.counts(llm["correct"])]
    tokens, llm_tokens, moved = (
        sum(row[name] for row, _ in answered) for name in ("tokens", "llm_tokens", "bytes")
    )
    return Candidate(
        rule=rule,
        n=len(kept),
        discordant=kept.count(False),
        llm_fraction=llm_tokens / tokens,
        cost=moved / sum(llm["bytes"] for _, llm in answered),
    )


def held_out(outcomes: pa.Table, lines: Iterable[Iterable[Tried]]) -> list[list[Candidate]]:
    """Compare the rules of all lines with the LLM on the held-out questions.

    They are graded against an answer, the LLM's own where none is given.
    """
    answers = _answers(outcomes, HELD_OUT)
    llm_rows = answers.get(Tried("llm", LLM), {})
    return [
        [candidate(each.rule, answers.get(each, {}).values(), llm_rows, ACCURACY) for each in line]
        for line in lines
    ]


def choose_rules(
    found: Findings, rivals: Findings, measure: Measure, epsilon: float, delta: float
) -> tuple[Chosen, list[Step]]:
    """Choose a rule for each method of a router from its findings.

    All rules are tested in one sequence, the returned steps. The held-out questions decide its
    order, so the promises hold at confidence 1 - delta for all methods together.
    """
    own = dict.fromkeys(Tried(row["method"], rule_of(row)) for row in found.points)
    by_method: dict[str, list[Tried]] = {}
    for tried in own:
        by_method.setdefault(tried.method, []).append(tried)
    lines = list(by_method.values())
    seen, validated = held_out(found.outcomes, lines), _answers(found.outcomes, "validation")
    llm_rows = rivals.llm_alone("validation")
    steps = []
    for n, number in sequence(seen, epsilon):
        tried = lines[n][number]
        judged = candidate(tried.rule, validated[tried].values(), llm_rows, measure)
        steps.append(Step(tried.method, seen[n][number], judged))
    methods = list(dict.fromkeys(["router", *styles(found.points)]))
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


def _answers(outcomes: pa.Table, split: str) -> Answers:
    answers: dict[Tried, dict[str, Row]] = {}
    for row in outcomes.filter(pc.field("split") == split).to_pylist():
        answers.setdefault(Tried(row["method"], rule_of(row)), {})[row["problem_id"]] = row
    return answers
