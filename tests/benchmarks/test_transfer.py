"""The transfer matrix, computed by hand, and the routers of a tiny run."""

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.transfer import ALL, Routed, columns, figures, kept, risk, trainings
from benchmarks.workshop import Workshop
from citer.report.against import Answers
from citer.rule import LLM, Rule
from tests.benchmarks.outcomes import alone, answered

BY_SCORE, BY_RISK = Rule("score", 0.5), Rule("risk", 0.5, 0.1)


def made(correct: str, moved: int, rule: Rule) -> Routed:
    tables = (
        alone("0000", "1111"),
        answered("router", BY_SCORE, correct, moved, llm_tokens=moved // 10),
        answered("audited", BY_RISK, correct, moved + 10),
    )
    return Routed(Answers.of(pa.concat_tables(tables)), "router", rule)


def test_the_risk_counts_the_questions_that_the_llm_answers_right() -> None:
    routed_Q, llm_Q = np.array([1.0, 1, 0, 0]), np.array([1.0, 1, 1, 0])
    drawn_RQ = np.array([[1, 1, 1, 1], [1, 0, 2, 1], [0, 0, 0, 4]])
    assert risk(routed_Q, llm_Q, drawn_RQ) == pytest.approx([1 / 3, 2 / 3, 0])


def test_figures_of_one_router_are_read_on_its_frontiers() -> None:
    found = figures(made("1101", 20, BY_SCORE), np.ones(4, bool))
    first = {name: value_R[0] for name, value_R in found.items()}
    # 3.8 of 4 right: .8 of the way from the rule (3 right) to the LLM
    assert first == pytest.approx(
        {
            "f95": 0.2 + 0.8 * 0.8,
            "c95": 0.3 + 0.8 * 0.7,
            "accuracy": 0.75,
            "cost": 0.2,
            "risk": 0.25,
        }
    )


def test_a_router_is_compared_with_the_one_of_the_task_over_seeds() -> None:
    seeds = {
        "math": [made("1100", 20, BY_SCORE), made("1100", 40, BY_SCORE)],
        "mc": [made("1011", 30, BY_SCORE), made("1111", 50, BY_SCORE)],
    }
    found = columns(seeds, "math", 0.05)
    assert found["accuracy"]["math"] == (1, 1, 1)
    assert "math" not in found["accuracy above own"]
    assert found["cost"]["math"] == pytest.approx([0.3] * 3)
    assert found["accuracy"]["mc"][0] == 0.75
    assert found["accuracy above own"]["mc"][0] == -0.25
    assert found["cost above own"]["mc"] == pytest.approx([0.1] * 3)


def test_the_promise_is_counted_by_seed() -> None:
    seeds = [made("1011", 30, BY_SCORE), made("1111", 50, BY_SCORE), made("0011", 50, LLM)]
    in_math_Q = np.array([True, True, False, False])
    assert kept(seeds, in_math_Q, 0.05) == "2 of 3"  # the LLM's own answers lose none


def test_a_router_of_one_task_sees_no_question_of_another(shop: Workshop) -> None:
    shops = trainings(shop)
    assert list(shops) == ["math", "mc", ALL]
    assert shops[ALL] is shop
    rows = {name: set(each.tokens["problem_id"].to_pylist()) for name, each in shops.items()}
    assert rows["math"] | rows["mc"] == rows[ALL] == set(shop.preference)
    for task in ("math", "mc"):
        own = shops[task]
        assert {shop.preference[key].task for key in rows[task]} == {task}
        assert {problem.task for problem in own.validation} == {task}
        assert own.test == shop.test
