"""The tasks, by name. A task is a row format, a prompt and a grader. `TASKS` is their only list.

Nearly every module imports this package, so it has only the code for prompts. The modules that read
rows and grade answers are imported at their first call. Encoding a prompt therefore needs no
math-verify, and the code digest of a stage that only encodes does not depend on a grader.
"""

from typing import TYPE_CHECKING

from citer.data.tasks.math import Math
from citer.data.tasks.mc import MultipleChoice
from citer.data.tasks.task import Task

if TYPE_CHECKING:
    from collections.abc import Mapping

    from citer.data.problems import Problem

__all__ = ["EMBEDDED_TASKS", "TASKS", "Task", "known_task", "prompt_text"]

TASKS: "Mapping[str, Task]" = {task.name: task for task in (Math(), MultipleChoice())}

EMBEDDED_TASKS = (Math.name, MultipleChoice.name)


def known_task(name: str) -> str:
    """Return `name` if it is the name of a task. Raises ValueError otherwise."""
    if name not in TASKS:
        *others, last = map(repr, TASKS)
        raise ValueError(f"{name!r}: expected {', '.join(others)} or {last}")
    return name


def prompt_text(problem: "Problem") -> str:
    """Return the text of a problem's prompt, without special tokens."""
    return TASKS[problem.task].prompt_text(problem)
