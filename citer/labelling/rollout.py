"""Rollouts: finish and grade the answer after each model's token at a contested position."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from citer.data.problems import Problem
from citer.data.prompts import Encoded
from citer.data.tasks.grading import WRONG, Grade, assess
from citer.decoding.answer import Request
from citer.decoding.engine import Engine
from citer.decoding.policy import Policy
from citer.labelling.preference import BranchOutcomes, Tie, cases, preferences
from citer.progress import Advance

BRANCHING = ["problem_id", "position", "slm_token", "llm_token"]


class Branch(NamedTuple):
    """The reference before a contested position, followed by the token of one model."""

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

    def request(self) -> Request:
        prompt_ids, reference_ids = self.example
        trunk_ids = (*prompt_ids, *reference_ids)
        return Request(self.key, tuple(prompt_ids), self.prefix_ids, trunk_ids)


class Contest(NamedTuple):
    """The two branches of a contested position. No two branches of a table are equal."""

    slm: Branch
    llm: Branch


@dataclass(frozen=True)
class Labeller:
    """Labels tokens by rollouts under one policy. `problems` and `examples` are keyed by id."""

    problems: Mapping[str, Problem]
    examples: Mapping[str, Encoded]
    engine: Engine
    policy: Policy
    tie: Tie
    iteration: int

    def label(self, tokens: pa.Table, advance: Advance) -> pa.Table:
        """Return the preference table of the joined `tokens`.

        `advance` counts branches, two per contested position.
        """
        case_N = token_cases(tokens)
        contested = np.flatnonzero(case_N == "contested")
        rows = tokens.select(BRANCHING).take(contested).to_pylist()
        contests = [self._contest(**row) for row in rows]
        outcomes = roll_out(contests, self.engine, self.policy, advance)
        branches = dict(zip(contested.tolist(), outcomes, strict=True))
        return preferences(tokens, case_N, branches, self.tie, self.iteration)

    def _contest(self, problem_id: str, position: int, slm_token: int, llm_token: int) -> Contest:
        place = (self.problems[problem_id], self.examples[problem_id], position)
        return Contest(Branch(*place, slm_token), Branch(*place, llm_token))


def token_cases(tokens: pa.Table) -> np.ndarray:
    """Return the case of each row of the joined token table."""
    return cases(*(tokens[name].to_numpy() for name in ("gt_token", "slm_token", "llm_token")))


def roll_out(
    contests: Sequence[Contest], engine: Engine, policy: Policy, advance: Advance
) -> list[BranchOutcomes]:
    """Roll out the SLM's branch of each contest and, if it ends wrong, the LLM's branch."""
    slm: dict[int, Grade] = {}
    for index, grade in _grades([contest.slm for contest in contests], engine, policy):
        slm[index] = grade
        advance(2 if grade.correct else 1)
    failed = [index for index in range(len(contests)) if not slm[index].correct]
    llm: dict[int, Grade] = {}
    for index, grade in _grades([contests[index].llm for index in failed], engine, policy):
        llm[failed[index]] = grade
        advance(1)
    return [_outcomes(slm[index], llm.get(index)) for index in range(len(contests))]


def _outcomes(slm: Grade, llm: Grade | None) -> BranchOutcomes:
    if llm is None:
        return BranchOutcomes(slm.correct)
    return BranchOutcomes(slm.correct, llm.correct, slm.failure or llm.failure)


def _grades(
    branches: Sequence[Branch], engine: Engine, policy: Policy
) -> Iterator[tuple[int, Grade]]:
    """Finish the branches and yield the index and grade of each, in any order.

    A truncated answer is wrong.
    """
    text, ended = engine.pair.text, engine.pair.ended
    unfinished = {}
    for index, branch in enumerate(branches):
        if ended(branch.prefix_ids):
            yield index, assess(branch.problem, text(branch.prefix_ids))
        else:
            unfinished[branch.key] = index, branch
    requests = (branch.request() for _, branch in unfinished.values())
    for answer in engine.decode(requests, policy):
        index, branch = unfinished[answer.key]
        completion = text(branch.prefix_ids + answer.token_ids)
        yield index, WRONG if answer.truncated else assess(branch.problem, completion)
