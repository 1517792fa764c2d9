"""Rows by hand: two questions a task, answered by a routed and by an LLM-only run."""

from dataclasses import replace

import pytest

from citer.config import EvaluateParams
from citer.errors import InputError
from citer.evaluation.cost import Prices, Trace
from citer.evaluation.points import (
    Findings,
    outcome_rows,
    point_rows,
    read_findings,
    write_findings,
)
from citer.evaluation.sweep import Result, Run
from tests.tiny import MATH, MC

PARAMS = EvaluateParams(
    seed=1,
    slots=4,
    max_new_tokens=8,
    llm_fractions=(0.0, 1.0),
    epsilon=0.1,
    delta=0.1,
    batches=(1, 2),
    resamples=50,
)
PRICES = Prices(slm_weights=100, llm_weights=1000, slm_kv=0, llm_kv=0)
QUESTIONS = [
    replace(problem, problem_id=f"{problem.task}{n}", split="test")
    for n in range(2)
    for problem in (MATH, MC)
]


def result(index: int, by_llm: str, tau: float, correct: bool, truncated: bool = False) -> Result:
    scores = tuple(0.0 if letter == "L" else 0.9 for letter in by_llm)
    problem = QUESTIONS[index]
    trace = Trace(5, bytes(score < tau for score in scores), asks_slm=tau < 1)
    return Result(problem, tau, trace, scores, correct, truncated)


ROUTED = Run(
    "router",
    0.5,
    [
        result(0, "SLS", 0.5, True),
        result(1, "SS", 0.5, False, truncated=True),
        result(2, "S", 0.5, True),
        result(3, "LL", 0.5, True),
    ],
    PRICES,
)
ALONE = Run("llm", 1.0, [result(n, "LL", 1.0, True) for n in range(4)], PRICES)


def rows(*runs: Run) -> dict[tuple[str, str], dict]:
    return {(row["method"], row["task"]): row for row in point_rows(runs, PARAMS)}


def test_an_outcome_counts_tokens_and_prices_them_at_batch_1():
    first, second, *_ = outcome_rows([ROUTED])
    assert first == {
        "split": "test",
        "method": "router",
        "threshold": 0.5,
        "problem_id": "math0",
        "task": "math",
        "correct": True,
        "truncated": False,
        "tokens": 3,
        "llm_tokens": 1,
        "bytes": 3 * 100 + 1 * 1000,
    }
    assert (second["truncated"], second["llm_tokens"], second["bytes"]) == (True, 0, 200)


def test_the_llm_alone_never_pays_for_the_slm():
    assert [row["bytes"] for row in outcome_rows([ALONE])] == [2000] * 4


def test_a_point_is_a_mean_over_questions_and_a_share_of_tokens():
    point = rows(ROUTED, ALONE)["router", "all"]
    assert point["questions"] == 4
    assert point["accuracy"] == 0.75
    assert point["accuracy_low"] <= 0.75 <= point["accuracy_high"]
    assert point["llm_fraction"] == 3 / 8
    assert point["tokens_per_answer"] == 2
    assert point["truncated_share"] == 0.25
    assert point["bytes_per_answer_b1"] == (8 * 100 + 3 * 1000) / 4


def test_every_task_has_a_point_of_its_own():
    found = rows(ROUTED, ALONE)
    assert {task for _, task in found} == {"all", "math", "mc"}
    assert found["router", "math"]["accuracy"] == 1.0
    assert found["router", "mc"]["accuracy"] == 0.5
    assert found["router", "math"]["llm_fraction"] == 1 / 4


def test_cost_is_relative_to_the_llm_alone_on_its_own_answers_at_the_same_batch():
    found = rows(ROUTED, ALONE)
    assert found["llm", "all"]["cost_b1"] == found["llm", "all"]["cost_b2"] == 1.0
    assert found["router", "all"]["cost_b1"] == 3800 / 8000
    # Two at a time, math alone: the SLM prefills both, then runs twice; one LLM call. The LLM
    # alone prefills both, then runs once.
    assert found["router", "math"]["cost_b2"] == (3 * 100 + 1000) / 2000


def test_the_llm_may_have_been_priced_before():
    earlier = point_rows([ALONE], PARAMS)
    assert point_rows([ROUTED], PARAMS, earlier) == point_rows([ALONE, ROUTED], PARAMS)[3:]


@pytest.fixture
def written(tmp_path):
    found = Findings(list(outcome_rows([ROUTED])), point_rows([ROUTED, ALONE], PARAMS))
    write_findings(tmp_path, found, PARAMS, {"seed": 1, "dtype": "float32"})
    return tmp_path, found


def test_findings_come_back_from_disk(written):
    folder, found = written
    assert read_findings(folder, PARAMS, {"seed": 1, "dtype": "float32"}) == found


def test_findings_of_another_study_are_refused_by_field(written):
    folder, _ = written
    with pytest.raises(InputError, match=r"outcomes\.parquet: its dtype is float32, here .*64"):
        read_findings(folder, PARAMS, {"seed": 1, "dtype": "float64"})
