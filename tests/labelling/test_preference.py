"""The truth table, row by row."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from citer.data.importing import parse_question
from citer.labelling.contests import Decision, preferences, token_cases

BOTH_WRONG = Decision(1, "rollout", False, False)
LLM_RIGHT = Decision(0, "rollout", False, True)


@pytest.mark.parametrize(
    ("slm", "llm", "case", "by_llm"),
    [
        (7, 7, "slm_right", "slm_right"),
        (7, 8, "slm_right", "slm_right"),
        (8, 7, "llm_right", "contested"),
        (8, 8, "same_wrong", "same_wrong"),
        (8, 9, "contested", "contested"),
    ],
)
def test_the_case_of_a_position_whose_reference_is_7(
    slm: int, llm: int, case: str, by_llm: str
) -> None:
    """The LLM's token proves nothing in a reference that the LLM wrote."""
    names = ("gt_token", "slm_token", "llm_token")
    tokens = {name: [token, token] for name, token in zip(names, (7, slm, llm), strict=True)}
    given = parse_question({"problem": "2?"}, ["math"])
    problems = {"a": given, "b": replace(given, written_by="llm")}
    found = token_cases(problems, pa.table({"problem_id": ["a", "b"], **tokens}))
    assert found.tolist() == [case, by_llm]


def test_the_table_keeps_the_order() -> None:
    case_N = np.array(["slm_right", "contested", "contested", "llm_right", "same_wrong"])
    tokens = pa.table({"problem_id": [*"aaabb"], "position": pa.array([0, 1, 2, 0, 1], "i4")})
    decisions = {1: BOTH_WRONG, 2: LLM_RIGHT}
    table = preferences(tokens, case_N, decisions, 2)
    rows = [tuple(row.values()) for row in table.to_pylist()]
    assert rows == [
        ("a", 0, "slm_right", 1, "shortcut", None, None, 2, None, None),
        ("a", 1, "contested", 1, "rollout", False, False, 2, None, None),
        ("a", 2, "contested", 0, "rollout", False, True, 2, None, None),
        ("b", 0, "llm_right", 0, "shortcut", None, None, 2, None, None),
        ("b", 1, "same_wrong", 1, "same_token", None, None, 2, None, None),
    ]
