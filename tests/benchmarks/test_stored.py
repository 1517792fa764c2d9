"""Figures of stored answers, computed by hand."""

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.stored import Rows, accuracy, cost, risk
from citer.evaluation.points import rule_columns
from citer.rule import LLM, SLM, Rule
from citer.schema import OUTCOME

EACH_ONCE, THE_LAST_TWICE = np.array([1, 1, 1, 1]), np.array([1, 0, 1, 2])
BOTH = np.array([EACH_ONCE, THE_LAST_TWICE])
HALF = Rule("score", 0.5)


def answered(method: str, rule: Rule, correct: str, moved: int, split: str = "test") -> pa.Table:
    """Make four answers, two of each task, with a digit of `correct` for each."""
    rows = [
        {
            "split": split,
            "method": method,
            **rule_columns(rule),
            "problem_id": f"{split}-{n}",
            "task": "math" if n < 2 else "mc",
            "correct": right == "1",
            "tokens": 10,
            "llm_tokens": 10 if method == "llm" else 0,
            "bytes": moved,
        }
        for n, right in enumerate(correct)
    ]
    return pa.Table.from_pylist(rows, OUTCOME)


@pytest.fixture
def rows() -> Rows:
    return Rows.of(
        answered("slm", SLM, "0000", 10, "validation"),
        answered("slm", SLM, "1000", 10),
        answered("llm", LLM, "1110", 100),
        answered("router", HALF, "1101", 40),
    )


def test_only_test_questions_are_read_and_a_rule_may_be_a_models_own(rows: Rows) -> None:
    assert rows.questions == [f"test-{n}" for n in range(4)]
    assert rows.in_task("mc").tolist() == [False, False, True, True]
    assert rows.rule("router", HALF).column("correct").tolist() == [[1, 1, 0, 1]]
    assert rows.rule("router", LLM).column("correct").tolist() == [[1, 1, 1, 0]]
    with pytest.raises(ValueError, match=r"router: no answers by `score 0\.7`"):
        rows.rule("router", Rule("score", 0.7))


def test_figures_weigh_the_questions_of_each_resample(rows: Rows) -> None:
    own, llm = rows.method("router"), rows.method("llm")
    assert accuracy(own, BOTH) == pytest.approx([3 / 4, 3 / 4])
    assert cost(own, llm, BOTH) == pytest.approx([0.4, 0.4])
    # The LLM is right on the first three; the router loses the third.
    assert risk(own, llm, BOTH) == pytest.approx([1 / 3, 1 / 2])
    assert risk(own, llm, np.array([[0, 0, 0, 4]])) == [0]


def test_the_outcomes_of_a_method_lie_between_those_of_the_models(rows: Rows) -> None:
    line = rows.outcomes("router")
    assert line.correct_TQ.sum(1).tolist() == [1, 3, 3]
    assert line.bytes_TQ[:, 0].tolist() == [10, 40, 100]
    # 2 of 3 right: half of the way from (cost .1, 1 right) to (.4, 3 right)
    assert line.cost_for(2 / 3, BOTH[:1]) == pytest.approx([0.25])
