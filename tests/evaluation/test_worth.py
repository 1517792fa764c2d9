"""The comparison with rivals on three questions, computed by hand."""

from collections.abc import Iterator

import pyarrow as pa
import pytest
from citer.report.against import Comparison, compare

from citer.evaluation.points import rule_columns
from citer.rule import Rule
from citer.storage.schema import OUTCOME
from tests.reported import chosen_rule

# By method and rule: right answers and bytes, one for each question.
ANSWERS = {
    ("slm", "score 0"): ("100", (1, 1, 1)),
    ("llm", "score 1"): ("111", (10, 10, 10)),
    ("weak", "score 0.5"): ("010", (5, 5, 5)),
    ("strong", "score 0.5"): ("110", (2, 2, 2)),
    ("router_1", "score 0.7"): ("011", (2, 2, 5)),
    ("router_1", "score 0.9"): ("111", (8, 8, 8)),
}
RULE = chosen_rule("score 0.7")


def outcomes(answers: dict, tasks: str = "aab") -> pa.Table:
    return pa.Table.from_pylist([*_rows(answers, tasks)], OUTCOME)


def _rows(answers: dict, tasks: str) -> Iterator[dict]:
    for (method, rule), (right, moved) in answers.items():
        columns = {"method": method, **rule_columns(Rule.parse(rule))}
        for n, (correct, size) in enumerate(zip(right, moved, strict=True)):
            own = {"problem_id": f"q{n}", "task": tasks[n], "correct": correct == "1"}
            counts = dict.fromkeys(OUTCOME.names[9:-1], 1)
            nothing = {"share": None, "failure": None, "truncated": False}
            test = {"split": "test", "bytes": size}
            yield counts | columns | own | nothing | test
            yield counts | columns | own | nothing | test | {"split": "validation", "bytes": 99}


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return compare([outcomes(ANSWERS)], {"router_1": RULE})


def beside(comparison: Comparison, rival: str, task: str = "all") -> dict:
    [row] = (r for r in comparison.against if (r["rival"], r["task"]) == (rival, task))
    return row


def areas(comparison: Comparison, task: str) -> dict[str, float | None]:
    return {row["method"]: row["area"] for row in comparison.areas if row["task"] == task}


def test_cost_and_accuracy_beside_a_rival(comparison):
    """Our rule has 2 of 3 right for 9 bytes.

    `weak` never beats the line from the SLM (1 right, 3 bytes) to the LLM (3 right, 30 bytes): half
    way, 2 right cost 16.5 bytes, and 9 bytes give 1 + 6/27 x 2 right. `strong` has 2 right for
    6 bytes; 9 bytes give 2 + 3/24 right.
    """
    weak, strong = (beside(comparison, rival) for rival in ("weak", "strong"))
    assert weak["cost_at_equal_accuracy"] == pytest.approx(9 / 16.5 - 1)
    assert weak["accuracy_at_equal_cost"] == pytest.approx((2 - 1 - 12 / 27) / 3)
    assert strong["cost_at_equal_accuracy"] == pytest.approx(9 / 6 - 1)
    assert strong["accuracy_at_equal_cost"] == pytest.approx(-(3 / 24) / 3)


def test_areas(comparison):
    """`strong`: half of the gap at a ninth of the cost: 1/9 x 1/4 + 8/9 x 3/4 below the line.

    Ours: half of it at 6/27 of the cost, all at 21/27.
    """
    found = areas(comparison, "all")
    assert list(found) == ["router_1", "weak", "strong"]
    assert found["weak"] == pytest.approx(0)
    assert found["strong"] == pytest.approx(2 * (1 / 9 / 4 + 8 / 9 * 3 / 4) - 1)
    ours = 2 * (6 / 27 / 4 + 15 / 27 * 3 / 4 + 6 / 27) - 1
    assert found["router_1"] == pytest.approx(ours)
    difference = beside(comparison, "strong")["area_difference"]
    assert difference == pytest.approx(ours - found["strong"])


def test_a_task_has_its_own_numbers(comparison):
    """On `a` ours has 1 of 2 right for 4 bytes; the SLM has as many for 2."""
    row = beside(comparison, "strong", "a")
    assert row["cost_at_equal_accuracy"] == pytest.approx(4 / 2 - 1)
    assert row["accuracy_at_equal_cost"] == pytest.approx((1 - 2) / 2)
    assert set(row) == {*beside(comparison, "weak")}


def test_a_bound_is_marked(comparison):
    marked = compare([outcomes(ANSWERS)], {"router_1": RULE}, {"strong"})
    assert [row["is_bound"] for row in marked.on_all("router_1")] == [False, True]
    assert not any(row["is_bound"] for row in comparison.against)


def test_questions_are_resampled_in_pairs():
    """A rival with our answers and bytes is neither cheaper nor better in any resample."""
    exact = "111", (1, 9, 4)
    both = ANSWERS | {("exact", "score 0.3"): exact, ("router_1", "score 0.7"): exact}
    row = beside(compare([outcomes(both)], {"router_1": RULE}), "exact")
    for name in ("cost_at_equal_accuracy", "accuracy_at_equal_cost"):
        assert [row[name], row[f"{name}_low"], row[f"{name}_high"]] == [0, 0, 0]


def test_what_is_not_reached_has_no_number():
    """The LLM is wrong where we are right, and our rule is cheaper than the SLM alone."""
    unreached = ANSWERS | {
        ("slm", "score 0"): ("100", (2, 2, 2)),
        ("llm", "score 1"): ("110", (10, 10, 10)),
        ("router_1", "score 0.7"): ("111", (1, 1, 1)),
    }
    row = beside(compare([outcomes(unreached)], {"router_1": RULE}), "weak")
    for name in ("cost_at_equal_accuracy", "accuracy_at_equal_cost"):
        assert row[name] is row[f"{name}_low"] is row[f"{name}_high"] is None


def test_without_a_gap_between_the_models_there_is_no_area():
    level = {("slm", "score 0"): ("111", (1, 1, 1))}
    found = compare([outcomes(ANSWERS | level)], {"router_1": RULE})
    assert set(areas(found, "all").values()) == {None}


def test_an_uncertified_rule_is_compared_as_the_llm_alone():
    found = compare([outcomes(ANSWERS)], {"router_1": chosen_rule("score 1")})
    assert beside(found, "weak")["cost_at_equal_accuracy"] == pytest.approx(0)


def test_a_run_that_lacks_a_question_is_an_error():
    with pytest.raises(AssertionError, match="lacks questions"):
        compare([outcomes(ANSWERS).slice(0, 34)], {"router_1": RULE})
