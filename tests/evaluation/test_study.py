"""What each split decides, and which results must agree."""

from dataclasses import replace
from unittest.mock import Mock

import numpy as np
import pyarrow.compute as pc
import pytest

from citer.config.params import ServeParams
from citer.data.problems import Problem
from citer.decoding.engine import Engine
from citer.decoding.policy import (
    CERTAINTIES,
    LLM_ALONE,
    SLM_ALONE,
    Policy,
    routed,
)
from citer.evaluation.candidates import UNTRAINED, method_of
from citer.evaluation.choice import HELD_OUT, Candidate, choose_each, deployed
from citer.evaluation.cost import counted, schedules
from citer.evaluation.points import Findings, rule_of
from citer.evaluation.study import Study
from citer.evaluation.sweep import request
from citer.models.router import Router
from citer.rule import LLM, Rule
from tests.studied import (
    DECODE,
    EVALUATE,
    by_the_engine,
    changed,
    chosen_of,
    fixed_scorers,
    in_the_rows,
    llm_alone,
    own_scorers,
    routed_study,
    rows_of,
    stamp_of,
    unscreened,
)


@pytest.fixture(scope="module")
def everything(study: Study, router: Router, tmp_path_factory: pytest.TempPathFactory) -> Findings:
    return unscreened(replace(study, partial=tmp_path_factory.mktemp("everything")), router)


def rules_of(findings: Findings, split: str) -> set[tuple[str, Rule]]:
    return {
        (row["method"], rule_of(row)) for row in findings.candidates.points if row["split"] == split
    }


def test_each_model_alone_gives_the_answers_of_single_decodes(study, fixed):
    assert in_the_rows(fixed, "slm", SLM_ALONE.rule) == by_the_engine(study, SLM_ALONE)
    alone = in_the_rows(fixed, "llm", LLM_ALONE.rule)
    assert alone == by_the_engine(study, LLM_ALONE)
    assert {right for right, _, _ in alone.values()} == {True, False}


@pytest.mark.slow
def test_each_candidate_gives_the_answers_of_single_decodes(study, router, everything):
    """Its rule tells all that its answers depend on."""
    tried = rules_of(everything, "test")
    assert {rule.by for _, rule in tried} == {"", *CERTAINTIES, *router.heads}
    found = {}
    for method, rule in tried:
        found[rule] = in_the_rows(everything, method, rule)
        assert found[rule] == by_the_engine(study, routed(router, rule))
    assert len({tuple(sorted(answers.items())) for answers in found.values()}) > len(found) / 2


def test_thresholds_are_quantiles_of_the_scores_in_the_slms_held_out_answers(
    study, router, everything
):
    engine = Engine(study.pair, 1, DECODE.max_new_tokens)
    scorers = fixed_scorers(router) | own_scorers(router)
    scorers.pop("")
    for name, scorer in scorers.items():
        scores = []
        for problem in study.holdout:
            asked = [request(problem, study.pair)]
            [answer] = engine.decode(asked, Policy(scorer, SLM_ALONE.rule))
            scores += answer.scores
        taus = np.quantile(scores, [0.1, 0.4], method="midpoint")
        tried = {
            r.at for _, r in rules_of(everything, "test") if (r.by, r.visit) == (name, "score")
        }
        assert sorted(tried - {0.0}) == pytest.approx(sorted(taus))  # at 0: the SLM alone


def test_of_each_scorer_and_acceptance_the_rules_that_none_beats_on_held_out_questions_are_tested(
    everything, fixed, studied
):
    kept = rules_of(fixed.joined(studied[0]), "test")
    assert kept == _worth_testing(everything)
    assert 0 < len(kept) < len(rules_of(everything, "test"))
    for split in ("validation", HELD_OUT):
        assert rules_of(fixed.joined(studied[0]), split) == kept


def _worth_testing(everything: Findings, batch: int = 1) -> set[tuple[str, Rule]]:
    """Return the rules of which no other of the family is cheaper and loses no more."""
    alone = llm_alone(everything, HELD_OUT)
    seen = {
        each: counted_by_hand(rows_of(everything, HELD_OUT, *each), alone, each[1])
        for each in rules_of(everything, HELD_OUT)
    }
    if batch > 1:
        columns = f"cost_b{batch}", f"cost_b{batch}_delayed"
        for point in everything.candidates.points:
            if point["split"] == HELD_OUT:
                each = point["method"], rule_of(point)
                seen[each] = replace(seen[each], cost=min(point[name] for name in columns))
    kept = set()
    for (_, rule), own in seen.items():
        family = (o for (_, r), o in seen.items() if _family(r) == _family(rule))
        beaten = any(o.discordant <= own.discordant and o.cost < own.cost for o in family)
        if not beaten and own.discordant <= 0.2 * own.n:
            kept.add((method_of(rule), rule))
    return kept


def _family(rule: Rule) -> tuple:
    return rule.by, rule.audit, rule.draft, method_of(rule)


def test_the_rows_of_all_splits_are_of_the_same_rules(fixed, studied):
    """Outcomes and points have the same rules, and no method but the LLM has more of them."""
    for findings in (fixed.candidates, studied[0]):
        for split in ("validation", "test", HELD_OUT):
            rows = findings.outcomes.filter(pc.field("split") == split).to_pylist()
            assert {(row["method"], rule_of(row)) for row in rows} == rules_of(findings, split)


def test_the_held_out_questions_order_the_rules_and_validation_tests_them(study, everything):
    chosen, steps = chosen_of(study, everything)
    keys = [(step.held_out.discordant, -step.held_out.cost) for step in steps]
    assert keys == sorted(keys)
    assert len({lost for lost, _ in keys}) > 1
    for split, seen in ((HELD_OUT, "held_out"), ("validation", "validation")):
        alone = llm_alone(everything, split)
        for step in steps:
            own: Candidate = getattr(step, seen)
            rows = rows_of(everything, split, step.method, own.rule)
            expected = counted_by_hand(rows, alone, own.rule)
            assert own == replace(expected, cost=pytest.approx(expected.cost))
    methods = {step.method for step in steps}
    assert chosen == choose_each(steps, list(chosen), EVALUATE.epsilon, EVALUATE.delta)
    assert methods <= set(chosen) == {method for method, _ in rules_of(everything, "test")}


def counted_by_hand(rows: list[dict], alone: dict[str, dict], rule: Rule) -> Candidate:
    pairs = [(row, alone[row["problem_id"]]) for row in rows]
    kept = [row["correct"] for row, llm in pairs if llm["correct"]]
    llm_fraction = sum(row["llm_tokens"] for row in rows) / sum(row["tokens"] for row in rows)
    cost = sum(row["bytes"] for row in rows) / sum(llm["bytes"] for _, llm in pairs)
    return Candidate(rule, len(kept), kept.count(False), llm_fraction, cost)


def test_the_order_of_the_rules_depends_on_the_held_out_questions_alone(
    study, router, studied, tmp_path
):
    """Wrong validation answers change what is certified, and not which rule is tested next."""
    wrongly = [wrong(problem) for problem in study.validation]
    other = replace(study, validation=wrongly, partial=tmp_path)
    _, _, steps = routed_study(other, router, other.fixed(fixed_scorers(router)))
    assert [step.held_out for step in steps] == [step.held_out for step in studied[2]]


def test_the_batch_at_which_a_rule_serves_decides_its_cost(study, router, everything, tmp_path):
    """At batch 4 it is the lower of the costs with and without delay."""
    other = replace(changed(study, "serve", batch=4), partial=tmp_path)
    fixed = other.fixed(fixed_scorers(router))
    found = fixed.joined(other.candidates(own_scorers(router), fixed))
    assert rules_of(found, "test") == _worth_testing(everything, 4) != _worth_testing(everything)
    chosen, steps = chosen_of(other, found)
    points = {(p["split"], p["method"], rule_of(p)): p for p in found.points if p["task"] == "all"}
    for step in steps:
        for split, seen in ((HELD_OUT, step.held_out), ("validation", step.validation)):
            point = points[split, step.method, seen.rule]
            assert seen.cost == min(point["cost_b4"], point["cost_b4_delayed"])
            assert seen.cost != point["cost_b1"]
    cheapest = min(step.validation.cost for step in steps if step.validation.rule.exact)
    assert chosen[deployed(chosen)].cost <= cheapest


def test_points_have_the_cost_where_a_rule_serves_also_if_it_is_not_reported():
    names = [batch.name for batch in counted(EVALUATE, ServeParams(batch=3))]
    assert names == ["b1", "b3", "b4", "b3_delayed", "b4_delayed"]
    assert [batch.name for batch in schedules(ServeParams(batch=3))] == ["b3", "b3_delayed"]
    assert [batch.name for batch in schedules(ServeParams())] == ["b1"]


@pytest.mark.parametrize(
    ("copied", "engine", "drafters"),
    [(0.1, "citer", ["slm", "lookup", "both"]), (0.099, "citer", ["slm"]), (1.0, "vllm", ["slm"])],
)
def test_lookups_are_tried_if_they_copy_a_tenth(
    study, fixed, tmp_path, monkeypatch, copied, engine, drafters
):
    monkeypatch.setattr("citer.evaluation.study.share", lambda found: copied)
    tried = Mock(return_value=[])
    monkeypatch.setattr("citer.evaluation.study.candidates", tried)
    other = replace(changed(study, "serve", engine=engine), partial=tmp_path)
    other.candidates(UNTRAINED, fixed)
    assert tried.call_args.args[3] == drafters


def test_without_rules_to_try_only_the_models_alone_are_run(study, router, tmp_path):
    nothing = {"llm_fractions": (0.0, 1.0), "risks": (), "gammas": ()}
    ends = replace(changed(study, **nothing), partial=tmp_path)
    fixed = ends.fixed(fixed_scorers(router))
    assert {row["method"] for row in fixed.points} == {"slm", "llm", "oracle"}
    findings, chosen, steps = routed_study(ends, router, fixed)
    assert (findings.points, len(findings.outcomes), steps) == ([], 0, [])
    assert {name: (each.rule, each.certified) for name, each in chosen.items()} == {
        "llm": (LLM, False)
    }


def wrong(problem: Problem) -> Problem:
    return replace(problem, answer="never")


def test_the_stamp_of_a_study_depends_on_questions_and_settings(study):
    assert stamp_of(replace(study)) == stamp_of(study)
    assert stamp_of(replace(study, test=study.test[1:])) != stamp_of(study)
    assert stamp_of(changed(study, "decode", max_new_tokens=41)) != stamp_of(study)
    reseeded = study.params.model_copy(update={"seed": 4})
    assert stamp_of(replace(study, params=reseeded)) != stamp_of(study)
