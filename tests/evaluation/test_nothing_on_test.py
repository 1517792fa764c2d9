"""Nothing is chosen on test: neither a rule, nor a threshold of a rival."""

from dataclasses import replace
from pathlib import Path

import pyarrow.compute as pc

from citer.data.problems import Problem
from citer.evaluation.choice import Chosen
from citer.evaluation.points import Findings, rule_columns
from citer.evaluation.study import Study
from citer.models.router import Router
from citer.rule import LLM
from tests.studied import THRESHOLDS, routed_study


def shuffled(problems: list[Problem]) -> list[Problem]:
    """Give each problem the answer of another one, in another order, and leave one out."""
    answers = [problem.answer for problem in problems]
    moved = zip(problems, answers[2:] + answers[:2], strict=True)
    return [replace(problem, answer=answer) for problem, answer in moved][:0:-1]


def results(
    study: Study, router: Router, folder: Path, **other: list[Problem]
) -> tuple[Findings, Findings, Chosen]:
    changed = replace(study, partial=folder, **other)
    rivals = changed.rivals()
    own, chosen, *_ = routed_study(changed, router, THRESHOLDS, rivals)
    return rivals, own, chosen


def tried(findings: Findings) -> set[tuple]:
    """The rules of each method that has points on test."""
    names = ("method", *rule_columns(LLM))
    return {tuple(point[name] for name in names) for point in findings.points}


def accuracies(findings: Findings) -> list[float]:
    return [point["accuracy"] for point in findings.points if point["task"] == "all"]


def validated(findings: Findings) -> list[dict]:
    return findings.outcomes.filter(pc.field("split") == "validation").to_pylist()


def test_other_test_outcomes_change_no_rule_and_no_threshold(
    study: Study,
    router: Router,
    rivals: Findings,
    studied: tuple[Findings, Chosen],
    tmp_path: Path,
):
    findings, chosen, *_ = studied
    other_rivals, other, other_chosen = results(
        study, router, tmp_path, test=shuffled(list(study.test))
    )
    assert other_chosen == chosen
    for one, changed in ((rivals, other_rivals), (findings, other)):
        assert tried(changed) == tried(one)
        assert validated(changed) == validated(one)
        assert accuracies(changed) != accuracies(one)


def test_other_validation_outcomes_change_them(
    study: Study, router: Router, rivals: Findings, studied: tuple, tmp_path: Path
):
    """Otherwise the test above could not fail."""
    other_rivals, _, chosen = results(
        study, router, tmp_path, validation=shuffled(list(study.validation))
    )
    assert chosen != studied[1]
    assert tried(other_rivals) != tried(rivals)
