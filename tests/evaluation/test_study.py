"""What each split decides, and which results must agree."""

from collections import Counter
from dataclasses import replace

import pyarrow.compute as pc
import pytest
import torch

from citer.data.problems import Problem
from citer.decoding.answer import Answer, Visit
from citer.decoding.policy import LLM_ALONE, SLM_ALONE, Policy, StepView, always_slm, routed
from citer.evaluation.choice import Candidate
from citer.evaluation.cost import Prices, Trace
from citer.evaluation.evidence import HELD_OUT, candidate
from citer.evaluation.measure import ACCURACY
from citer.evaluation.points import outcome_rows, rule_of
from citer.evaluation.result import Result
from citer.evaluation.sequence import choose_each
from citer.evaluation.sweep import Run
from citer.models.router import features
from citer.rule import LLM, Rule
from tests.studied import (
    PARAMS,
    THRESHOLDS,
    by_the_engine,
    in_the_rows,
    routed_study,
    rows_of,
    stamp_of,
)
from tests.taught import problems


def test_each_model_alone_gives_the_answers_of_single_decodes(study, rivals):
    assert in_the_rows(rivals, "slm", SLM_ALONE.rule) == by_the_engine(study, SLM_ALONE)
    alone = in_the_rows(rivals, "llm", LLM_ALONE.rule)
    assert alone == by_the_engine(study, LLM_ALONE)
    assert {right for right, _, _ in alone.values()} == {True, False}


@pytest.mark.parametrize(
    ("method", "text"),
    [
        ("router", "score 0.3"),
        ("router", "score 0.7"),
        ("audited", "risk 0.6 audit 0.3"),
        ("audited", "risk 0.2 audit 1"),
    ],
)
def test_each_rule_of_a_study_gives_the_answers_of_single_decodes(
    study, router, studied, method, text
):
    rule = Rule.parse(text)
    answered = in_the_rows(studied[0], method, rule)
    assert answered == by_the_engine(study, routed(router, rule))


@pytest.mark.parametrize("method", ["policy", "exact"])
def test_a_rule_of_any_scorer_tells_all_that_its_answers_depend_on(study, router, studied, method):
    tried = {rule_of(row) for row in studied[0].points if row["method"] == method}
    assert len({rule.by for rule in tried}) > 1
    for rule in tried:
        assert in_the_rows(studied[0], method, rule) == by_the_engine(study, routed(router, rule))


def test_only_rules_that_few_others_beat_on_the_held_out_questions_are_tested(study, studied):
    findings = studied[0]
    for split in ("validation", "test", HELD_OUT):
        rows = findings.outcomes.filter(pc.field("split") == split).to_pylist()
        rules = {(row["method"], rule_of(row)) for row in rows} - {("llm", LLM)}
        assert rules == {(row["method"], rule_of(row)) for row in findings.points}


def test_lines_go_from_the_safest_rule_to_the_boldest_each_with_its_head(study, router):
    lines = study.presets(router, THRESHOLDS)
    assert [(line.method.name, [str(rule) for rule in line.rules]) for line in lines] == [
        ("router", ["score 0.7", "score 0.5", "score 0.3"]),
        ("audited", ["risk 0.6 audit 0.3", "risk 0.2 audit 0.3"]),
        ("audited", ["risk 0.6 audit 1.0", "risk 0.2 audit 1.0"]),
    ]
    torch.manual_seed(0)
    hidden_NH = torch.randn(5, study.pair.slm.hidden_size).double()
    logits_NV = torch.randn(5, study.pair.vocabulary.size).double()
    view = StepView(hidden_NH, logits_NV, *torch.zeros(2, 5, dtype=torch.int64))
    heads = [router.heads[name] for name in ("stand", "stand", "agree")]
    for line, head in zip(lines, heads, strict=True):
        expected = head.score(features(hidden_NH, logits_NV))
        assert line.method.scorer(view).equal(expected)
        assert line.method.weight_bytes == head.weight_bytes


@pytest.mark.parametrize("split", ["validation", "test"])
def test_exact_answers_equal_the_llms_and_are_never_discordant(rivals, studied, split):
    exact = next(rule_of(row) for row in studied[0].points if row["method"] == "exact")
    findings = rows_of(studied[0], split, "exact", exact)
    alone = rivals.llm_alone(split)
    same = ("problem_id", "correct", "truncated", "tokens")
    assert len(findings) == len(alone) == 6
    for row in findings:
        assert {name: row[name] for name in same} == {
            name: alone[row["problem_id"]][name] for name in same
        }
    assert {row["disagreed"] for row in findings} != {0}
    assert all(row["disagreed"] == row["rejected"] for row in findings)


def test_the_held_out_questions_order_the_rules_and_validation_tests_them(
    study, router, rivals, studied
):
    findings, chosen, steps = studied
    keys = [(step.held_out.discordant, -step.held_out.cost) for step in steps]
    assert keys == sorted(keys)
    assert len({lost for lost, _ in keys}) > 1
    alone = rivals.llm_alone("validation")
    for step in steps:
        rows = rows_of(findings, "validation", step.method, step.validation.rule)
        assert step.validation == counted(rows, alone, step.held_out.rule)
    methods = ["router", "audited", "policy", "exact"]
    assert chosen == choose_each(steps, methods, PARAMS.epsilon, PARAMS.delta)


def counted(rows: list[dict], alone: dict[str, dict], rule: Rule) -> Candidate:
    pairs = [(row, alone[row["problem_id"]]) for row in rows]
    kept = [row["correct"] for row, llm in pairs if llm["correct"]]
    llm_fraction = sum(row["llm_tokens"] for row in rows) / sum(row["tokens"] for row in rows)
    cost = sum(row["bytes"] for row in rows) / sum(llm["bytes"] for _, llm in pairs)
    return Candidate(rule, len(kept), kept.count(False), llm_fraction, cost)


def test_the_order_of_the_rules_depends_on_the_held_out_questions_alone(
    study, router, rivals, studied, tmp_path
):
    """Wrong validation answers change what is certified, and not which rule is tested next."""
    wrongly = [wrong(problem) for problem in study.validation]
    other = replace(study, validation=wrongly, partial=tmp_path)
    _, _, steps = routed_study(other, router, THRESHOLDS, other.rivals())
    assert [step.held_out for step in steps] == [step.held_out for step in studied[2]]


def test_the_llm_answers_alone_if_every_rule_surely_loses_too_much(
    study, router, rivals, monkeypatch, tmp_path
):
    """No rule is left to test."""
    monkeypatch.setattr("citer.evaluation.evidence.sequence", lambda *_: [])
    other = replace(study, partial=tmp_path)
    _, chosen, steps = routed_study(other, router, THRESHOLDS, rivals)
    assert not steps
    assert [each.rule for each in chosen.values()] == [LLM] * 4


def by_rule(row: dict) -> tuple:
    return row["method"], row["visit"], row["threshold"], row["audit"]


def test_points_cover_only_the_test_questions(study, rivals, studied):
    counts = {"all": len(study.test)} | Counter(problem.task for problem in study.test)
    assert len(rivals.points) == len(counts) * len({by_rule(row) for row in rivals.points})
    for row in (*rivals.points, *studied[0].points):
        assert row["questions"] == counts[row["task"]]


def test_without_rules_to_try_only_the_models_alone_are_run(study, router, tmp_path):
    nothing = {"llm_fractions": (0.0, 1.0), "risks": (), "gammas": ()}
    ends = replace(study, params=PARAMS.model_copy(update=nothing), partial=tmp_path)
    rivals = ends.rivals()
    assert {row["method"] for row in rivals.points} == {"slm", "llm", "oracle"}
    findings, chosen, _ = routed_study(ends, router, [0.0, 1.0], rivals)
    assert (findings.points, len(findings.without(HELD_OUT).outcomes)) == ([], 0)
    assert {name: (each.rule, each.certified) for name, each in chosen.items()} == {
        "router": (LLM, False)
    }


def wrong(problem: Problem) -> Problem:
    return replace(problem, answer="never")


def test_the_stamp_of_a_study_depends_on_questions_and_settings(study):
    assert stamp_of(replace(study)) == stamp_of(study)
    assert stamp_of(replace(study, test=study.test[1:])) != stamp_of(study)
    longer = study.decode.model_copy(update={"max_new_tokens": 41})
    assert stamp_of(replace(study, decode=longer)) != stamp_of(study)
    assert stamp_of(replace(study, seed=4)) != stamp_of(study)


def test_a_candidate_counts_the_llms_right_answers_and_how_many_are_lost():
    prices = Prices(slm_weights=100, llm_weights=1000, slm_kv=0, llm_kv=0)
    routed_right = [True, False, False, True]
    rule, visits = Rule("score", 0.5), (Visit(1, 0, 0),)
    answer = Answer("", Policy(always_slm, rule), (7, 7), (0.1, 0.9), visits, truncated=False)
    results = [
        Result(problem, Trace.of(5, 2, visits), (), right, False, answer.counts)
        for problem, right in zip(problems(4), routed_right, strict=True)
    ]
    alone = {
        problem.problem_id: {"correct": right, "bytes": 3000}
        for problem, right in zip(problems(4), [True, True, False, False], strict=True)
    }
    rows = outcome_rows(Run("router", rule, results, prices))
    assert candidate(rule, rows, alone, ACCURACY) == Candidate(
        rule=rule, n=2, discordant=1, llm_fraction=0.5, cost=(2 * 100 + 1000) / 3000
    )
