"""Preference labels: the truth table, and nothing else.

case        the SLM's token  the LLM's token    label (1: the SLM's token may stand)
slm_right   right            any                1
llm_right   wrong            right              0
same_wrong  wrong            the same           1: the same next state, cheaper
contested   wrong            wrong, another     1 if the SLM's branch ends in a right answer,
                                                else 0 if the LLM's does, else the tie rule
"""

from collections.abc import Mapping
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from citer.schema import PREFERENCE

ORIGIN = {
    "slm_right": "shortcut",
    "llm_right": "shortcut",
    "same_wrong": "same_token",
    "contested": "rollout",
}
Ends = tuple[bool | None, bool | None]  # did the SLM's branch, the LLM's, end right?
Tie = Literal["slm", "llm", "drop"]
TIE: dict[Tie, int | None] = {"slm": 1, "llm": 0, "drop": None}


def cases(gt_N: np.ndarray, slm_N: np.ndarray, llm_N: np.ndarray) -> np.ndarray:
    """The case of each position, from the reference's, the SLM's and the LLM's token ids."""
    return np.select(
        [slm_N == gt_N, llm_N == gt_N, slm_N == llm_N],
        ["slm_right", "llm_right", "same_wrong"],
        "contested",
    )


def label(case: str, ends: Ends, tie: Tie) -> int | None:
    """1, 0, or None for a row to drop; how the branches end decides contested cases alone."""
    if case != "contested":
        return 0 if case == "llm_right" else 1
    slm_correct, llm_correct = ends
    if slm_correct:
        return 1
    return 0 if llm_correct else TIE[tie]


def preferences(
    tokens: pa.Table,
    case_N: np.ndarray,
    branches: Mapping[int, Ends],
    tie: Tie,
    iteration: int,
) -> pa.Table:
    """The preference table of `tokens`; `branches`: how the contested rows' two ended."""
    ends = [branches.get(row, (None, None)) for row in range(len(tokens))]
    table = pa.table(
        {
            "problem_id": tokens["problem_id"],
            "position": tokens["position"],
            "case": case_N,
            "label": [label(case, end, tie) for case, end in zip(case_N, ends, strict=True)],
            "origin": [ORIGIN[case] for case in case_N],
            "slm_branch_correct": [slm_correct for slm_correct, _ in ends],
            "llm_branch_correct": [llm_correct for _, llm_correct in ends],
            "iteration": [iteration] * len(tokens),
        },
        schema=PREFERENCE,
    )
    return table.filter(pc.is_valid(table["label"]))
