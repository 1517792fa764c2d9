"""What is the same for all iterations, run through a study."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from citer.decoding.policy import CERTAINTIES, Policy, StepView
from citer.evaluation.bounds import BOUNDS, Alone, random
from citer.evaluation.choice import HELD_OUT
from citer.evaluation.measure import ACCURACY, Conditions
from citer.evaluation.methods import Kind, Style
from citer.evaluation.points import rule_of
from citer.evaluation.study import Study
from citer.evaluation.sweep import Line, Run
from citer.report.frontier import lines_of
from citer.report.standings import metrics, standings, summary
from citer.rule import Rule
from tests.studied import by_the_engine, changed, in_the_rows


def margin(view: StepView) -> Tensor:
    """score_N: how much likelier the SLM's first choice is than its second."""
    top_N2 = torch.softmax(view.logits_NV, -1).topk(2).values
    return (top_N2[:, 0] - top_N2[:, 1]).clamp(0, 0.999).float()


def by_margin(study: Study, _: Alone) -> Sequence[Run]:
    style = Style(Kind.BOUND, "purple", "p")
    rules = [Rule("score", 0.1), Rule("score", 0.9)]
    [runs] = study.answered(study.test, [Line("margin", margin, rules, style)])
    return runs


def test_a_new_bound_needs_only_one_function_and_one_entry(
    study, fixed, studied, monkeypatch, tmp_path
):
    monkeypatch.setitem(BOUNDS, "margin", by_margin)
    listed = changed(study, bounds=("random", "margin"))
    found = replace(listed, partial=tmp_path).fixed({})
    rule = Rule("score", 0.9)
    answered = by_the_engine(study, Policy(margin, rule))
    assert in_the_rows(found, "margin", rule) == answered
    assert sum(llm_tokens for _, _, llm_tokens in answered.values()) > 0

    points = [*found.on_test, *fixed.candidates.on_test, *studied[0].on_test]
    rows = standings(points, studied[1])
    assert summary(rows, studied[1], [1, 4], Conditions()).count("| margin ") == 3  # all, math, mc
    assert metrics(rows, studied[1], ACCURACY)["margin"]["cost_b1"] > 0
    assert "margin" in [line.method for line in lines_of(points, studied[1])]


def test_bounds_are_answered_on_test_alone_and_candidates_on_all_splits(fixed):
    methods = {(row["split"], row["method"]) for row in fixed.outcomes.to_pylist()}
    by_split = {split: {m for s, m in methods if s == split} for split, _ in methods}
    own = set(fixed.candidates.outcomes["method"].to_pylist())
    assert own >= {"speculative", "bild", "policy", "exact"}
    alone = {"slm", "llm"}
    assert by_split == {
        "test": alone | {*BOUNDS} | own,
        "validation": alone | own,
        HELD_OUT: {"llm"} | own,
    }


def test_random_is_answered_at_the_middle_fraction(study, fixed):
    rules = {rule_of(row) for row in fixed.points if row["method"] == "random"}
    rule = Rule("score", 0.1)
    assert rules == {rule}
    answered = by_the_engine(study, Policy(partial(random, study.params.seed), rule))
    assert in_the_rows(fixed, "random", rule) == answered


def test_bild_is_a_certainty_with_audits(study, fixed):
    rules = {rule_of(row) for row in fixed.points if row["method"] == "bild"}
    assert rules
    for rule in rules:
        assert (rule.by in CERTAINTIES, rule.audit) == (True, 0.3)
        answered = by_the_engine(study, Policy(CERTAINTIES[rule.by], rule))
        assert in_the_rows(fixed, "bild", rule) == answered
