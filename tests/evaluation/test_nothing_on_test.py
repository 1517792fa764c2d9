"""Nothing is chosen on test: neither a rule, nor a threshold."""

from dataclasses import replace
from pathlib import Path

import pyarrow.compute as pc

from citer.data.problems import Problem
from citer.evaluation.choice import Chosen
from citer.evaluation.points import Findings, rule_columns
from citer.evaluation.study import Study
from citer.models.router import Router
from citer.rule import LLM
from tests.studied import fixed_scorers, routed_study


def shuffled(problems: list[Problem]) -> list[Problem]:
    """Give each problem the answer of another one, in another order, and leave one out."""
    answers = [problem.answer for problem in problems]
    moved = zip(problems, answers[2:] + answers[:2], strict=True)
    return [replace(problem, answer=answer) for problem, answer in moved][:0:-1]


def tried(findings: Findings) -> set[tuple]:
    """The rules of each method that has points on test."""
    names = ("method", *rule_columns(LLM))
    return {tuple(point[name] for name in names) for point in findings.on_test}


def accuracies(findings: Findings) -> list[float]:
    return [point["accuracy"] for point in findings.on_test if point["task"] == "all"]


def elsewhere(findings: Findings) -> list[dict]:
    """The answers to validation and to the held-out questions."""
    return findings.outcomes.filter(pc.field("split") != "test").to_pylist()


def test_other_test_outcomes_change_no_rule_and_no_threshold(
    study: Study,
    router: Router,
    fixed: Findings,
    studied: tuple[Findings, Chosen],
    tmp_path: Path,
):
    findings, chosen, *_ = studied
    other_study = replace(study, partial=tmp_path, test=shuffled(list(study.test)))
    other_fixed = other_study.fixed(fixed_scorers(router))
    other, other_chosen, _ = routed_study(other_study, router, other_fixed)
    assert other_chosen == chosen
    for one, changed in ((fixed, other_fixed), (findings, other)):
        assert tried(changed) == tried(one)
        assert elsewhere(changed) == elsewhere(one)
        assert accuracies(changed) != accuracies(one)
