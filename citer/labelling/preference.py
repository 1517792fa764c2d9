"""The truth table of preference labels.

case        the SLM's token  the LLM's token    label (1: accept the SLM's token)
slm_right   right            any                1
llm_right   wrong            right              0
same_wrong  wrong            the same           1: the next state is the same, the SLM is cheaper
contested   wrong            wrong, another     1 if the SLM's branch is correct,
                                                else 0 if the LLM's is, else the tie rule
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

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
Tie = Literal["slm", "llm", "drop"]
TIE: dict[Tie, int | None] = {"slm": 1, "llm": 0, "drop": None}


class BranchOutcomes(NamedTuple):
    """Whether each branch of a position ends in a right answer. None: it was not rolled out.

    `failure` says why the grader failed on one of them, if so.
    """

    slm_correct: bool | None = None
    llm_correct: bool | None = None
    failure: str | None = None


def cases(gt_N: np.ndarray, slm_N: np.ndarray, llm_N: np.ndarray) -> np.ndarray:
    """Return the case of each of N positions.

    `gt_N`, `slm_N` and `llm_N` are the token ids of the reference, the SLM and the LLM.
    """
    return np.select(
        [slm_N == gt_N, llm_N == gt_N, slm_N == llm_N],
        ["slm_right", "llm_right", "same_wrong"],
        "contested",
    )


def label(case: str, outcomes: BranchOutcomes, tie: Tie) -> int | None:
    """Return 1, 0, or None to drop the row. Only contested cases depend on `outcomes`."""
    if case != "contested":
        return 0 if case == "llm_right" else 1
    if outcomes.slm_correct:
        return 1
    return 0 if outcomes.llm_correct else TIE[tie]


def preferences(
    tokens: pa.Table,
    case_N: np.ndarray,
    branches: Mapping[int, BranchOutcomes],
    tie: Tie,
    iteration: int,
) -> pa.Table:
    """Return the preference table of `tokens`, given the outcomes of its contested rows."""
    outcomes = [branches.get(row, BranchOutcomes()) for row in range(len(tokens))]
    labels = [label(case, each, tie) for case, each in zip(case_N, outcomes, strict=True)]
    table = pa.table(
        {
            "problem_id": tokens["problem_id"],
            "position": tokens["position"],
            "case": case_N,
            "label": labels,
            "origin": [ORIGIN[case] for case in case_N],
            "slm_branch_correct": [each.slm_correct for each in outcomes],
            "llm_branch_correct": [each.llm_correct for each in outcomes],
            "failure": [each.failure for each in outcomes],
            "iteration": [iteration] * len(tokens),
        },
        schema=PREFERENCE,
    )
    return table.filter(pc.is_valid(table["label"]))
