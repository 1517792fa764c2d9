"""A study without right answers: the LLM's own answers take their place."""

from dataclasses import replace

import pyarrow.parquet as pq
import pytest

from citer.config.params import SamplingParams
from citer.data.problems import Problem
from citer.data.tasks import find_task
from citer.decoding.engine import Engine, Request
from citer.decoding.policy import Policy, routed
from citer.evaluation.measure import FIDELITY, Conditions
from citer.evaluation.points import Findings, read_findings, write_findings
from citer.evaluation.study import Study
from citer.models.router import Router
from tests.studied import (
    DECODE,
    changed,
    chosen_of,
    fixed_scorers,
    llm_alone,
    llm_writes,
    stamp_of,
    unscreened,
)

WARM = SamplingParams(temperature=0.7, top_p=0.9)


@pytest.fixture(scope="module")
def faithful(study: Study, tmp_path_factory) -> Study:
    """The study with the LLM's finished answers as references, and no right answers."""
    validation, test = (
        [written for p in split if (written := _by_llm(study, p))]
        for split in (study.validation, study.test)
    )
    partial = tmp_path_factory.mktemp("partial")
    split = {"validation": validation, "test": test}
    return replace(study, **split, measure=FIDELITY, partial=partial)


def _by_llm(study: Study, problem: Problem) -> Problem | None:
    text, truncated = llm_writes(study, problem)
    return None if truncated else replace(problem, answer=None, reference=text, written_by="llm")


@pytest.fixture(scope="module")
def found(faithful, router) -> Findings:
    return unscreened(faithful, router)


@pytest.mark.slow
def test_the_promise_counts_the_answers_that_differ_from_the_llms(faithful, router, found):
    candidates = [step.validation for step in chosen_of(faithful, found)[1]]
    assert faithful.measure is FIDELITY
    policies = [routed(router, each.rule) for each in candidates]
    differing = [sum(_differs(faithful, p, each) for p in faithful.validation) for each in policies]
    assert [each.discordant for each in candidates] == differing
    assert {each.n for each in candidates} == {len(faithful.validation)}
    assert len(set(differing)) > 1


def test_held_out_questions_without_an_answer_are_compared_with_the_llms(study, router, tmp_path):
    """Also in a study of accuracy."""
    bare = [replace(problem, answer=None) for problem in study.holdout]
    other = replace(study, holdout=bare, partial=tmp_path)
    _check_held_out(other, router, other.fixed(fixed_scorers(router)))


def test_under_fidelity_held_out_questions_are_compared_with_the_llms_whatever_is_right(
    faithful, router, tmp_path
):
    wrong = [replace(problem, answer="never") for problem in faithful.holdout]
    other = replace(faithful, holdout=wrong, partial=tmp_path)
    _check_held_out(other, router, other.fixed(fixed_scorers(router)))


def _check_held_out(study: Study, router: Router, found: Findings) -> None:
    written = [each for problem in study.holdout if (each := _by_llm(study, problem))]
    _, steps = chosen_of(study, found)
    seen = {step.held_out.rule: step.held_out for step in steps}
    assert {each.n for each in seen.values()} == {len(written)} != {0}
    seen = dict([*seen.items()][::4])  # the others take seconds more
    differing = {
        rule: sum(_differs(study, p, routed(router, rule)) for p in written) for rule in seen
    }
    assert {rule: each.discordant for rule, each in seen.items()} == differing


def _differs(study: Study, problem: Problem, policy: Policy) -> bool:
    prompt_ids = tuple(study.pair.prompts.prompt_ids(problem))
    engine = Engine(study.pair, 1, DECODE.max_new_tokens)
    (answer,) = engine.decode([Request(problem.problem_id, prompt_ids)], policy)
    text = study.pair.text(answer.token_ids)
    same = find_task(problem.task).same(problem, problem.reference, text)
    return answer.truncated or not same


def test_the_llm_and_exact_methods_are_faithful_and_the_slm_is_not(found):
    by_method = {p["method"]: p["accuracy"] for p in found.on_test if p["task"] == "all"}
    assert by_method["llm"] == by_method["speculative"] == 1
    assert by_method["slm"] < 1
    exact = [p for p in found.points if p["audit"] == 1]
    assert {p["accuracy"] for p in exact} == {1}


def test_the_promise_includes_questions_on_which_the_llm_does_not_repeat_its_answer(
    faithful, router, tmp_path
):
    first, *others = faithful.validation
    changed = [replace(first, reference="Something else."), *others]
    other = replace(faithful, validation=changed, partial=tmp_path)
    fixed = other.fixed(fixed_scorers(router))
    assert not llm_alone(fixed, "validation")[first.problem_id]["correct"]
    steps = chosen_of(other, fixed)[1]
    exact = [step.validation for step in steps if step.validation.rule.exact]
    assert {(each.n, each.discordant) for each in exact} == {(len(changed), 1)}


def test_points_by_fidelity_are_stored_in_a_column_of_its_name(faithful, found, tmp_path):
    write_findings(tmp_path, found, faithful.batches, stamp_of(faithful))
    assert read_findings(tmp_path, faithful.batches, stamp_of(faithful)) == found
    names = pq.read_schema(tmp_path / "points.parquet").names
    assert {"fidelity", "fidelity_low", "fidelity_high"} < set(names)
    assert not any("accuracy" in name for name in names)


def test_the_stamp_names_measure_sampling_and_llm(study, faithful):
    assert Conditions().fields.items() <= stamp_of(study).items()
    assert not {"measure_llm", "measure_prompts"} & stamp_of(study).keys()
    sampled = changed(study, sampling=WARM)
    assert stamp_of(sampled) == stamp_of(study) | {"sampling": "temperature 0.7, top-p 0.9"}
    assert stamp_of(faithful)["measure"] == "fidelity"
    assert stamp_of(faithful)["measure_llm"] == stamp_of(faithful)["llm"]["digest"]
    assert stamp_of(faithful)["measure_prompts"] == stamp_of(faithful)["template"]
