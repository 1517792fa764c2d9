"""A taught pair and a router of random weights: what each split decides, and what must agree."""

from dataclasses import replace

import pytest
import torch

from citer.config import EvaluateParams, PairParams
from citer.data.answers import grade
from citer.data.problems import Problem
from citer.data.prompts import encode
from citer.decoding.engine import Engine, Request
from citer.decoding.policy import LLM_ALONE, SLM_ALONE, Policy, routed
from citer.evaluation.cost import Prices, Trace
from citer.evaluation.points import Findings
from citer.evaluation.study import Study, candidate, quantiles
from citer.evaluation.sweep import Result, Run
from citer.evaluation.threshold import Candidate, Threshold
from citer.models.pair import load_pair
from citer.models.router import Router, RouterMLP
from tests.taught import make_taught_pair, problems

THRESHOLDS = [0.0, 0.3, 0.5, 0.7, 1.0]
PARAMS = EvaluateParams(
    seed=3,
    slots=5,
    max_new_tokens=40,
    llm_fractions=(0.0, 0.1, 0.4, 1.0),
    epsilon=0.9,
    delta=0.2,
    batches=(1, 4),
    resamples=20,
)


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Study:
    asked = problems(12)
    slm, llm = make_taught_pair(tmp_path_factory.mktemp("taught"), asked)
    section = PairParams(slm=str(slm), llm=str(llm), device="cpu", dtype="float64")
    split = [replace(p, split="validation" if n < 6 else "test") for n, p in enumerate(asked)]
    return Study(load_pair(slm, llm, section), split[:6], split[6:], PARAMS)


@pytest.fixture(scope="module")
def router(study: Study) -> Router:
    torch.manual_seed(0)
    mlp = RouterMLP(study.pair.slm.hidden_size, dropout=0.1)
    return Router(mlp.double().eval().requires_grad_(False), slope=9.0)


@pytest.fixture(scope="module")
def rivals(study: Study) -> Findings:
    return study.rivals()


@pytest.fixture(scope="module")
def studied(study: Study, router: Router, rivals: Findings) -> tuple[Findings, Threshold]:
    return study.router(router, THRESHOLDS, rivals)


def by_the_engine(study: Study, policy: Policy) -> dict[str, tuple[bool, int, int]]:
    """Correct, tokens and the LLM's tokens of each test question, one at a time."""
    engine = Engine(study.pair, 1, PARAMS.max_new_tokens)
    found = {}
    for problem in study.test:
        prompt_ids = encode(problem, study.pair.tokenizer, study.pair.eos_id).prompt_ids
        (answer,) = engine.decode([Request(problem.problem_id, tuple(prompt_ids))], policy)
        right = not answer.truncated and grade(problem, study.pair.text(answer.token_ids))
        found[problem.problem_id] = (right, len(answer.token_ids), sum(answer.by_llm))
    return found


def in_the_rows(found: Findings, method: str, tau: float) -> dict[str, tuple[bool, int, int]]:
    return {
        row["problem_id"]: (row["correct"], row["tokens"], row["llm_tokens"])
        for row in found.outcomes
        if (row["split"], row["method"], row["threshold"]) == ("test", method, tau)
    }


def test_each_model_alone_answers_as_it_does_by_itself(study, rivals):
    assert in_the_rows(rivals, "slm", 0.0) == by_the_engine(study, SLM_ALONE)
    alone = in_the_rows(rivals, "llm", 1.0)
    assert alone == by_the_engine(study, LLM_ALONE)
    assert {right for right, _, _ in alone.values()} == {True, False}


def test_a_router_answers_at_each_threshold_as_it_does_at_that_one_alone(study, router, studied):
    for tau in (0.3, 0.7):
        assert in_the_rows(studied[0], "router", tau) == by_the_engine(study, routed(router, tau))


@pytest.mark.usefixtures("two_threads")
def test_two_processes_find_what_one_does(study, router, rivals, studied):
    assert study.router(router, THRESHOLDS, rivals) == studied


def test_only_the_models_alone_answer_validation_among_the_rivals(rivals):
    methods = {(row["split"], row["method"]) for row in rivals.points}
    alone = {(split, name) for split in ("validation", "test") for name in ("slm", "llm")}
    assert methods == alone | {("test", "entropy"), ("test", "random")}


def test_random_is_tried_at_a_third_of_the_target_fractions_and_entropy_at_all(rivals):
    assert {r["threshold"] for r in rivals.points if r["method"] == "random"} == {0.1}
    entropy = [r for r in rivals.points if (r["method"], r["task"]) == ("entropy", "all")]
    low, high = sorted(entropy, key=lambda row: row["threshold"])
    assert 0 < low["llm_fraction"] < high["llm_fraction"] < 1


def test_quantiles_put_that_share_of_scores_below():
    scores = [n / 100 for n in range(100)]
    for fraction, tau in zip((0.1, 0.25), quantiles(scores, (0.1, 0.25)), strict=True):
        assert sum(score < tau for score in scores) == pytest.approx(100 * fraction, abs=1)
        assert tau not in scores


def test_equal_scores_give_one_threshold():
    assert quantiles([0.5] * 10, (0.1, 0.2, 0.3)) == [0.5]


def test_without_inner_thresholds_only_the_models_alone_are_run(study, router):
    ends = replace(study, params=PARAMS.model_copy(update={"llm_fractions": (0.0, 1.0)}))
    rivals = ends.rivals()
    assert {row["method"] for row in rivals.points} == {"slm", "llm"}
    found, threshold = ends.router(router, [0.0, 1.0], rivals)
    assert (found.points, threshold.tau, threshold.certified) == ([], 1.0, False)


def wrong(problem: Problem) -> Problem:
    return replace(problem, answer="never")


def test_test_answers_change_what_is_reported_and_never_the_threshold(study, router, studied):
    other = replace(study, test=[wrong(problem) for problem in study.test])
    found, threshold = other.router(router, THRESHOLDS, other.rivals())
    assert threshold == studied[1]
    assert threshold.certified
    assert any(row["correct"] for row in studied[0].outcomes if row["split"] == "test")
    assert not any(row["correct"] for row in found.outcomes if row["split"] == "test")


def test_validation_answers_decide_the_threshold(study, router, studied):
    other = replace(study, validation=[wrong(problem) for problem in study.validation])
    _, threshold = other.router(router, THRESHOLDS, other.rivals())
    assert threshold.discordant == 0 < studied[1].discordant


def test_a_study_is_known_by_pair_questions_and_settings(study):
    assert replace(study).stamp == study.stamp
    assert replace(study, test=study.test[1:]).stamp != study.stamp
    longer = PARAMS.model_copy(update={"max_new_tokens": 41})
    assert replace(study, params=longer).stamp != study.stamp


def test_a_candidate_counts_where_the_llm_alone_was_right_and_the_routed_answer_is_not():
    prices = Prices(slm_weights=100, llm_weights=1000, slm_kv=0, llm_kv=0)
    routed_right = [True, False, False, True]
    results = [
        Result(problem, 0.5, Trace(5, (1, 0)), (0.1, 0.9), right, truncated=False)
        for problem, right in zip(problems(4), routed_right, strict=True)
    ]
    alone = {
        problem.problem_id: {"correct": right, "bytes": 3000}
        for problem, right in zip(problems(4), [True, True, False, False], strict=True)
    }
    assert candidate(Run("router", 0.5, results, prices), alone) == Candidate(
        tau=0.5, n=4, discordant=1, llm_fraction=0.5, cost=(2 * 100 + 1000) / 3000
    )
