"""The choice on findings by hand: which cost decides, and what needs no test."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from citer.decoding.answer import Counts, Work
from citer.evaluation.choice import HELD_OUT, choose_rules, deployed
from citer.evaluation.cost import Batch, Prices, Trace, batches
from citer.evaluation.measure import ACCURACY, FIDELITY, Measure
from citer.evaluation.methods import Kind, Style
from citer.evaluation.points import Findings, outcome_table, point_rows
from citer.evaluation.sweep import Result, Run
from citer.rule import LLM, Rule
from tests.tiny import MATH

BATCHES = batches([8])
PLAIN, EIGHT, DELAYED = BATCHES
PRICES = Prices(slm_weights=10, llm_weights=100, slm_kv=0, llm_kv=0)
COUNTS = Counts(8, 1, 1, 0, 0, 0)
EARLY = Rule("score", 0.5, 0, "stand")
LATE = Rule("risk", 0.5, 0.3, "narrow")
EXACT = Rule("every", 8, 1)
# Forwards of each rule. The LLM is needed at another token of each question by `EARLY`.
FORWARDS = {
    LLM: lambda n: b"L" + 7 * b"l",
    EARLY: lambda n: b"S" + n * b"s" + b"L" + (6 - n) * b"s",
    LATE: lambda n: b"S" + 6 * b"s" + b"Ll",
    EXACT: lambda n: b"S" + 6 * b"s" + b"Lll",
}
METHODS = {LLM: "llm", EARLY: "router", LATE: "policy", EXACT: "speculative"}


def run(rule: Rule, split: str, questions: int, lost: int = 0) -> Run:
    """Answer so many questions, the first `lost` of them wrong."""
    kind = {LLM: Kind.ALONE, EXACT: Kind.EXACT}.get(rule, Kind.POLICY)
    results = []
    for n in range(questions):
        forwards = FORWARDS[rule](n % 7)
        slm, llm = (Work(forwards.upper().count(model), 0, 0) for model in (b"S", b"L"))
        problem = replace(MATH, problem_id=f"{split}{n}", split=split)
        trace = Trace(forwards, slm, llm)
        results.append(Result(problem, trace, (), n >= lost, False, COUNTS))
    return Run(METHODS[rule], rule, results, PRICES, Style(kind, "red", "o"))


def found(rules: Sequence[Rule], questions: int, lost: int = 0) -> Findings:
    """Ask the LLM and these rules as many held-out and validation questions."""
    runs = [
        run(rule, split, questions, 0 if rule in (LLM, EXACT) else lost)
        for split in (HELD_OUT, "validation")
        for rule in (LLM, *rules)
    ]
    return Findings(outcome_table(runs), point_rows(runs, BATCHES))


@pytest.mark.parametrize(
    ("schedules", "cheapest"),
    [([PLAIN], "router"), ([EIGHT], "policy"), ([EIGHT, DELAYED], "policy")],
)
def test_the_cost_where_a_rule_serves_decides_which_one_is_deployed(
    schedules: Sequence[Batch], cheapest: str
) -> None:
    """At batch 1 a visit more is dearer. In a batch, visits at the same time share a forward.

    The visits of `EARLY` come one after another. Those of `LATE`, two in place of one, all come at
    the end.
    """
    findings = found([EARLY, LATE], questions=84)
    chosen, _ = choose_rules(findings, ACCURACY, schedules, 0.05, 0.05)
    assert all(each.certified for each in chosen.values())
    points = {p["method"]: p for p in findings.points if p["split"] == "validation"}
    for method, each in chosen.items():
        assert each.cost == min(points[method][batch.column] for batch in schedules)
    assert deployed(chosen) == cheapest


@pytest.mark.parametrize(("measure", "n"), [(ACCURACY, 2), (FIDELITY, 4)])
def test_validation_counts_by_the_measure_and_held_out_questions_by_what_the_llm_has_right(
    measure: Measure, n: int
) -> None:
    runs = [
        run(rule, split, 4, lost)
        for split in (HELD_OUT, "validation")
        for rule, lost in ((LLM, 2), (EARLY, 3))
    ]
    findings = Findings(outcome_table(runs), point_rows(runs, BATCHES))
    _, [step] = choose_rules(findings, measure, [PLAIN], 0.5, 0.05)
    assert (step.held_out.n, step.held_out.discordant) == (2, 1)
    assert (step.validation.n, step.validation.discordant) == (n, n - 1)


def test_without_a_candidate_the_llm_is_deployed() -> None:
    chosen, steps = choose_rules(found([], questions=3), ACCURACY, [PLAIN], 0.05, 0.05)
    assert not steps
    assert deployed(chosen) == "llm"
    assert (chosen["llm"].rule, chosen["llm"].certified, chosen["llm"].cost) == (LLM, False, 1.0)
