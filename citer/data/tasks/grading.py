"""Grade completions. Rollouts, evaluation and the check of every reference use this grader."""

from typing import NamedTuple

from citer.data.problems import Problem
from citer.data.tasks import find_task

# The tasks import these modules lazily, when they grade. Naming them here puts them into
# the code digest of each stage that grades (`citer.closure`), and of no other stage.
GRADER_MODULES = (
    "citer.data.tasks.math.numbers",
    "citer.data.tasks.math.values",
    "citer.data.tasks.mc.options",
    "citer.data.tasks.plain.values",
)


class Grade(NamedTuple):
    """Whether a completion is right, and its share of the answer, from 0 to 1."""

    correct: bool
    share: float


WRONG = Grade(correct=False, share=0.0)


def grade(problem: Problem, completion: str) -> bool:
    """Return whether `completion` (the text after the prompt) answers `problem` correctly.

    The class of the task documents what counts as correct. The problem must have an answer.
    """
    return assess(problem, completion).correct


def assess(problem: Problem, completion: str) -> Grade:
    """Grade `completion`, the text after the prompt. The problem must have an answer."""
    assert problem.answer is not None, f"{problem.problem_id}: no answer to grade against"
    task = find_task(problem.task)
    share = float(task.grade(problem, completion))
    return Grade(share >= task.pass_share, share)
