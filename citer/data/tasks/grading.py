"""Grade completions. Rollouts, evaluation and the check of every reference use this grader."""

from citer.data.problems import Problem
from citer.data.tasks import TASKS

# The tasks import these modules lazily, when they grade. Naming them here puts them into
# the code digest of each stage that grades (`citer.closure`), and of no other stage.
GRADER_MODULES = ("citer.data.tasks.math.values", "citer.data.tasks.mc.options")


def grade(problem: Problem, completion: str) -> bool:
    """Return whether `completion` (the text after the prompt) answers `problem` correctly.

    The class of the task documents what counts as correct. The problem must have an answer.
    """
    assert problem.answer is not None, f"{problem.problem_id}: no answer to grade against"
    return TASKS[problem.task].grade(problem, completion)


def extracted(problem: Problem, completion: str) -> str | None:
    """Return what the grader reads in a completion (see `Task.extracted`)."""
    return TASKS[problem.task].extracted(problem, completion)
