"""The truth table, row by row."""

import numpy as np
import pyarrow as pa
import pytest

from citer.labelling.preference import BranchOutcomes, Tie, cases, label, preferences

NOT_ROLLED_OUT = BranchOutcomes()
SLM_RIGHT = BranchOutcomes(True)
LLM_RIGHT = BranchOutcomes(False, True)
BOTH_WRONG = BranchOutcomes(False, False)


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
def test_only_contested_positions_depend_on_their_branches(tie: Tie) -> None:
    for outcomes in (NOT_ROLLED_OUT, SLM_RIGHT, LLM_RIGHT, BOTH_WRONG):
        assert label("slm_right", outcomes, tie) == 1
        assert label("same_wrong", outcomes, tie) == 1
        assert label("llm_right", outcomes, tie) == 0


@pytest.mark.parametrize("tie", ["slm", "llm", "drop"])
def test_the_first_right_branch_decides(tie: Tie) -> None:
    assert label("contested", SLM_RIGHT, tie) == 1
    assert label("contested", LLM_RIGHT, tie) == 0


@pytest.mark.parametrize(("tie", "expected"), [("slm", 1), ("llm", 0), ("drop", None)])
def test_the_tie_rule_decides_if_both_branches_are_wrong(tie: Tie, expected: int | None) -> None:
    assert label("contested", BOTH_WRONG, tie) == expected


def test_the_table_keeps_the_order_and_drops_dropped_ties() -> None:
    tokens = pa.table(
        {"problem_id": ["a", "a", "a", "b"], "position": pa.array([0, 1, 2, 0], "i4")}
    )
    case_N = np.array(["slm_right", "contested", "contested", "llm_right"])
    table = preferences(tokens, case_N, {1: BOTH_WRONG, 2: LLM_RIGHT}, "drop", 2)
    rows = [tuple(row.values()) for row in table.to_pylist()]
    assert rows == [
        ("a", 0, "slm_right", 1, "shortcut", None, None, 2, None),
        ("a", 2, "contested", 0, "rollout", False, True, 2, None),
        ("b", 0, "llm_right", 0, "shortcut", None, None, 2, None),
    ]
