"""The LLM floor: how often the LLM must be right for routing to be worthwhile."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from statistics import fmean
from typing import NamedTuple

from citer.data.problems import Problem
from citer.data.tasks import task_label
from citer.evaluation.choice import upper_bound
from citer.evaluation.result import Result
from citer.pairs.probe import Reply

ABOVE_CHANCE = 0.1
CONFIDENCE = 0.95


class Shortfall(NamedTuple):
    """A task of which the LLM answers too few questions right."""

    task: str
    questions: int
    right: float  # share of questions, like `floor`
    floor: float

    @property
    def is_certain(self) -> bool:
        """Whether the upper bound of the share at confidence CONFIDENCE is below the floor."""
        return upper_bound(self.right * self.questions, self.questions, 1 - CONFIDENCE) < self.floor

    @property
    def doubt(self) -> str:
        """Warn of a shortfall that is not certain."""
        return f"too few questions to be sure, but {self} (evaluate.llm_floor)"

    def __str__(self) -> str:
        questions = f"{self.questions} {task_label(self.task)} questions of validation"
        return f"LLM right on {self.right:.1%} of {questions}, expected at least {self.floor:.1%}"


def shortfalls(results: Iterable[Result | Reply], llm_floor: float) -> Iterator[Shortfall]:
    """Yield the tasks of which the LLM answers too few of the graded questions right."""
    graded = (result for result in results if result.correct is not None)
    by_task = sorted(graded, key=lambda result: result.problem.task)
    for task, group in groupby(by_task, key=lambda result: result.problem.task):
        answered = list(group)
        right = fmean(result.correct is True for result in answered)
        least = floor([result.problem for result in answered], llm_floor)
        if right < least:
            yield Shortfall(task, len(answered), right, least)


def floor(problems: Sequence[Problem], llm_floor: float) -> float:
    """Return the least share of right answers for a task.

    This is `llm_floor`. For questions with options it is also at least 0.1 above chance, the mean
    of 1 / number of options. 0 turns both off.
    """
    options = [len(problem.choices) for problem in problems if problem.choices]
    if not (llm_floor and options):
        return llm_floor
    return max(llm_floor, fmean(1 / count for count in options) + ABOVE_CHANCE)
