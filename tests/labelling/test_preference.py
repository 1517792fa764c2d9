"""The truth table, row by row."""

import numpy as np
import pyarrow as pa
import pytest

from citer.labelling.preference import Ends, Tie, cases, label, preferences

UNKNOWN: Ends = (None, None)


@pytest.mark.parametrize(
    ("slm", "llm", "case"),
    [
        (7, 7, "slm_right"),
        (7, 8, "slm_right"),
        (8, 7, "llm_right"),
        (8, 8, "same_wrong"),
        (8, 9, "contested"),
    ],
)
def test_the_case_of_a_position_whose_reference_is_7(slm: int, llm: int, case: str) -> None:
    assert cases(np.array([7]), np.array([slm]), np.array([llm])).tolist() == [case]


@pytest.mark.parametrize("tie", ["slm", "llm", "drop"])
def test_only_contested_positions_look_at_their_branches(tie: Tie) -> None:
    for ends in (UNKNOWN, (True, None), (False, True), (False, False)):
        assert label("slm_right", ends, tie) == 1
        assert label("same_wrong", ends, tie) == 1
        assert label("llm_right", ends, tie) == 0


@pytest.mark.parametrize("tie", ["slm", "llm", "drop"])
def test_a_right_branch_decides_the_slm_s_first(tie: Tie) -> None:
    assert label("contested", (True, None), tie) == 1
    assert label("contested", (False, True), tie) == 0


@pytest.mark.parametrize(("tie", "expected"), [("slm", 1), ("llm", 0), ("drop", None)])
def test_the_tie_rule_decides_where_both_branches_fail(tie: Tie, expected: int | None) -> None:
    assert label("contested", (False, False), tie) == expected


def test_the_table_keeps_the_order_and_drops_dropped_ties() -> None:
    tokens = pa.table(
        {"problem_id": ["a", "a", "a", "b"], "position": pa.array([0, 1, 2, 0], "i4")}
    )
    case_N = np.array(["slm_right", "contested", "contested", "llm_right"])
    table = preferences(tokens, case_N, {1: (False, False), 2: (False, True)}, "drop", 2)
    rows = [tuple(row.values()) for row in table.to_pylist()]
    assert rows == [
        ("a", 0, "slm_right", 1, "shortcut", None, None, 2),
        ("a", 2, "contested", 0, "rollout", False, True, 2),
        ("b", 0, "llm_right", 0, "shortcut", None, None, 2),
    ]
