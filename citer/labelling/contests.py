"""The truth table of preference labels, and the interface of what decides contested tokens.

case        the SLM's token  the LLM's token    label (1: accept the SLM's token)
slm_right   right            any                1
llm_right   wrong            right              0
same_wrong  wrong            the same           1: the next state is the same, the SLM is cheaper
contested   wrong            wrong, another     decided by `label.method`

A token is right if it is the reference's. In a reference that the LLM wrote, its own token proves
nothing, so that the case `llm_right` is contested, too.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import compress
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from citer.data.problems import Problem
from citer.data.prompts import Encoded
from citer.decoding.answer import Request
from citer.progress import Advance
from citer.storage.schema import PREFERENCE


class Decision(NamedTuple):
    """A label, and where it is from."""

    label: int
    origin: str
    slm_correct: bool | None = None  # whether this branch ends right; None: it was not rolled out
    llm_correct: bool | None = None
    failure: str | None = None  # why the grader failed on one of them
    fall: float | None = None  # of the method `suffix`, in nats


UNCONTESTED = {
    "slm_right": Decision(1, "shortcut"),
    "llm_right": Decision(0, "shortcut"),
    "same_wrong": Decision(1, "same_token"),
}


def token_cases(problems: Mapping[str, Problem], tokens: pa.Table) -> np.ndarray:
    """Return the case of each row of the joined token table."""
    columns = ("gt_token", "slm_token", "llm_token")
    gt_N, slm_N, llm_N = (tokens[name].to_numpy() for name in columns)
    by_llm = [key for key, problem in problems.items() if problem.written_by == "llm"]
    by_llm_N = pc.is_in(tokens["problem_id"], pa.array(by_llm, pa.string())).to_numpy()
    return np.select(
        [slm_N == gt_N, (llm_N == gt_N) & ~by_llm_N, slm_N == llm_N],
        ["slm_right", "llm_right", "same_wrong"],
        "contested",
    )


def preferences(
    tokens: pa.Table, case_N: np.ndarray, decisions: Mapping[int, Decision], iteration: int
) -> pa.Table:
    """Return the preference table of `tokens`, given the decisions on contested rows."""
    rows = range(len(tokens))
    decided = [decisions.get(row) or UNCONTESTED[case_N[row]] for row in rows]
    return pa.table(
        {
            "problem_id": tokens["problem_id"],
            "position": tokens["position"],
            "case": case_N,
            "label": [each.label for each in decided],
            "origin": [each.origin for each in decided],
            "slm_branch_correct": [each.slm_correct for each in decided],
            "llm_branch_correct": [each.llm_correct for each in decided],
            "iteration": [iteration] * len(tokens),
            "failure": [each.failure for each in decided],
            "fall": [each.fall for each in decided],
        },
        schema=PREFERENCE,
    )


class Branch(NamedTuple):
    """The reference before a position, followed by the token of one model."""

    problem: Problem
    example: Encoded
    position: int
    token: int

    @property
    def key(self) -> str:
        return f"{self.problem.problem_id}@{self.position}:{self.token}"

    @property
    def prefix_ids(self) -> tuple[int, ...]:
        return (*self.example.reference_ids[: self.position], self.token)

    def request(self, new_tokens: int) -> Request:
        """Its trunk is the prompt and the reference, which all branches of a problem share."""
        prompt_ids, reference_ids = map(tuple, self.example)
        own = (self.key, prompt_ids, self.prefix_ids, prompt_ids + reference_ids)
        return Request(*own, max_new_tokens=new_tokens)


class Contest(NamedTuple):
    """The two branches of a contested position. No two branches of a table are equal."""

    slm: Branch
    llm: Branch


# What decides contested tokens, one by one: `Rollout`, `Suffix` or `by_row`. It can be pickled, and
# counts branches with `advance`, two per contest.
Method = Callable[[Sequence[Contest], Advance], list[Decision]]


def by_row(
    graded: Method, other: Method, contests: Sequence[Contest], advance: Advance
) -> list[Decision]:
    """Decide by `graded` where the row has a right answer, and by `other` elsewhere."""
    answered = [contest.slm.problem.answer is not None for contest in contests]
    by_answer = iter(graded(list(compress(contests, answered)), advance))
    left = [contest for contest in contests if contest.slm.problem.answer is None]
    by_other = iter(other(left, advance))
    return [next(by_answer if has else by_other) for has in answered]
