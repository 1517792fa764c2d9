"""The tasks, by name. A task is a row format, a prompt and a grader.

`TASKS` are the built-in ones. `find_task` also knows tasks of the user, `python:FILE:CLASS`.

Nearly every module imports this package, so it has only the code for prompts. The modules that read
rows and grade answers are imported at their first call. Encoding a prompt therefore needs no
math-verify, and the code digest of a stage that only encodes does not depend on a grader.
"""

from typing import TYPE_CHECKING

from citer.data.tasks.math import Math, Number
from citer.data.tasks.mc import MultipleChoice
from citer.data.tasks.plain import Contains, Exact, Json
from citer.data.tasks.task import Task

if TYPE_CHECKING:
    from collections.abc import Mapping

    from citer.data.problems import Problem

__all__ = ["TASKS", "Task", "find_task", "known_task", "prompt_text"]

# The order counts: a row without `task` belongs to the first task whose first field it has.
TASKS: "Mapping[str, Task]" = {
    task.name: task for task in (Math(), MultipleChoice(), Number(), Exact(), Contains(), Json())
}


def find_task(name: str) -> Task:
    """Return a task by its name. Raises ValueError if there is none."""
    return TASKS[known_task(name)]


def known_task(name: str) -> str:
    """Return `name` if it is the name of a task. Raises ValueError otherwise."""
    if name not in TASKS:
        *others, last = map(repr, TASKS)
        raise ValueError(f"{name!r}: expected {', '.join(others)} or {last}")
    return name


def prompt_text(problem: "Problem") -> str:
    """Return the text of a problem's prompt, without special tokens."""
    return find_task(problem.task).prompt_text(problem)
