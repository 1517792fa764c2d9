"""Contested tokens, their two branches, and the interface of what decides them."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from typing import NamedTuple, Protocol

from citer.data.problems import Problem
from citer.data.prompts import Encoded
from citer.decoding.answer import Request
from citer.labelling.preference import Decision
from citer.models.pair import Pair
from citer.progress import Advance


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

    def request(self) -> Request:
        """Its trunk is the prompt and the reference, which all branches of a problem share."""
        prompt_ids, reference_ids = map(tuple, self.example)
        return Request(self.key, prompt_ids, self.prefix_ids, prompt_ids + reference_ids)


class Contest(NamedTuple):
    """The two branches of a contested position. No two branches of a table are equal."""

    slm: Branch
    llm: Branch

    @property
    def problem(self) -> Problem:
        return self.slm.problem


class Method(Protocol):
    """Decides contested tokens: `Rollout`, `Suffix` or `ByRow`. It can be pickled.

    A decision must not depend on the other contests.
    """

    @property
    def pair(self) -> Pair: ...

    def __call__(self, contests: Sequence[Contest], advance: Advance) -> list[Decision]:
        """Return one decision per contest. `advance` counts branches, two per contest."""
        ...


@dataclass(frozen=True)
class ByRow:
    """Decides by `graded` where the row has a right answer, and by `other` elsewhere."""

    graded: Method
    other: Method

    @property
    def pair(self) -> Pair:
        return self.graded.pair

    def __call__(self, contests: Sequence[Contest], advance: Advance) -> list[Decision]:
        answered = [contest.problem.answer is not None for contest in contests]
        graded = iter(self.graded(list(compress(contests, answered)), advance))
        left = [contest for contest in contests if contest.problem.answer is None]
        other = iter(self.other(left, advance))
        return [next(graded if has else other) for has in answered]
