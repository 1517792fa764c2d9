"""Methods without training, run through a study."""

from dataclasses import replace

import pytest
import torch
from citer.evaluation.rivals import RIVALS
from citer.evaluation.rivals.rival import Rival, Setting, by_score, quantiles
from torch import Tensor

from citer.decoding.policy import LLM_ALONE, Policy, StepView
from citer.evaluation.measure import ACCURACY, Conditions
from citer.evaluation.methods import Kind, Style
from citer.evaluation.sweep import Line, Method
from citer.report.frontier import lines_of
from citer.report.standings import metrics, standings, summary
from citer.rule import Rule
from tests.studied import by_the_engine, in_the_rows, rows_of


def margin(view: StepView) -> Tensor:
    """score_N: how much likelier the SLM's first choice is than its second."""
    top_N2 = torch.softmax(view.logits_NV, -1).topk(2).values
    return (top_N2[:, 0] - top_N2[:, 1]).clamp(0, 0.999).float()


def by_margin(setting: Setting) -> Rival:
    style = Style(Kind.RIVAL, "purple", "p")
    return Rival(Line(Method("margin", margin, style=style), by_score([0.1, 0.9])))


def test_a_new_rival_needs_only_one_function_and_one_entry(study, studied, monkeypatch):
    monkeypatch.setitem(RIVALS, "margin", by_margin)
    listed = study.params.model_copy(update={"rivals": ("random", "margin")})
    findings, (routed, chosen, _) = replace(study, params=listed).rivals(), studied
    rule = Rule("score", 0.9)
    answered = by_the_engine(study, Policy(margin, rule))
    assert in_the_rows(findings, "margin", rule) == answered
    assert sum(llm_tokens for _, _, llm_tokens in answered.values()) > 0

    points = [*findings.points, *routed.points]
    rows = standings(points, chosen)
    assert summary(rows, chosen, [1, 4], Conditions()).count("| margin ") == 3  # all, math, mc
    assert metrics(rows, chosen, ACCURACY)["margin"]["cost_b1"] > 0
    assert "margin" in [line.method for line in lines_of(points, chosen)]


def test_speculative_decoding_is_tried_on_test_at_every_gamma_and_gives_the_llms_answers(rivals):
    tried = {
        (row["visit"], row["threshold"], row["audit"], row["split"])
        for row in rivals.outcomes.to_pylist()
        if row["method"] == "speculative"
    }
    assert tried == {("every", 2.0, 1.0, "test"), ("every", 3.0, 1.0, "test")}
    alone = in_the_rows(rivals, "llm", LLM_ALONE.rule)
    for gamma in (2, 3):
        rule = Rule("every", gamma, 1)
        answered = in_the_rows(rivals, "speculative", rule)
        assert {key: row[:2] for key, row in answered.items()} == {
            key: row[:2] for key, row in alone.items()
        }
        for row in rows_of(rivals, "test", "speculative", rule):
            assert row["visits"] < row["tokens"], "no draft was accepted"
            assert row["visits"] * (gamma + 1) >= row["tokens"]


def test_only_the_models_alone_answer_validation_among_the_rivals(rivals):
    methods = {(row["split"], row["method"]) for row in rivals.outcomes.to_pylist()}
    alone = {(split, name) for split in ("validation", "test") for name in ("slm", "llm")}
    assert methods == alone | {("test", name) for name in RIVALS}


def test_random_is_tried_at_the_middle_fraction_and_entropy_at_all(rivals):
    assert {r["threshold"] for r in rivals.points if r["method"] == "random"} == {0.1}
    entropy = [r for r in rivals.points if (r["method"], r["task"]) == ("entropy", "all")]
    low, high = sorted(entropy, key=lambda row: row["threshold"])
    assert 0 < low["llm_fraction"] < high["llm_fraction"] < 1


def test_bild_tries_the_audits_of_audited_routing(study, rivals):
    """Previously, its β was always 0.1, whatever ours was."""
    tried = {(r["visit"], r["audit"]) for r in rivals.points if r["method"] == "bild"}
    assert tried == {(visit, audit) for visit in ("score", "risk") for audit in study.params.audits}


def test_bild_with_audit_1_gives_the_llms_answers(study, tmp_path):
    rivals = replace(study, holdout=(), partial=tmp_path).rivals()  # all rules are tested
    alone = in_the_rows(rivals, "llm", LLM_ALONE.rule)
    for risk in study.params.risks:
        exact = in_the_rows(rivals, "bild", Rule("risk", risk, 1.0))
        assert {key: row[:2] for key, row in exact.items()} == {
            key: row[:2] for key, row in alone.items()
        }


def test_quantiles_put_that_share_of_scores_below():
    scores = [n / 100 for n in range(100)]
    for fraction, tau in zip((0.1, 0.25), quantiles(scores, (0.1, 0.25)), strict=True):
        assert sum(score < tau for score in scores) == pytest.approx(100 * fraction, abs=1)
        assert tau not in scores


def test_equal_scores_give_one_threshold():
    assert quantiles([0.5] * 10, (0.1, 0.2, 0.3)) == [0.5]
