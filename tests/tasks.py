"""What a task makes of a problem."""

from citer.data.problems import Problem
from citer.data.tasks import find_task


def prompt_text(problem: Problem) -> str:
    return find_task(problem.task).prompt_text(problem)
