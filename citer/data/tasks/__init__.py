"""The tasks, by name. A task is a row format, a prompt and a grader; `TASKS` is their only list.

This package is imported by nearly every module, so it holds only what a prompt needs. The modules
that read rows and grade answers are imported when they are first called: encoding a prompt then
neither needs math-verify nor depends on a grader's code.
"""

from typing import TYPE_CHECKING

from citer.data.tasks.math import Math
from citer.data.tasks.mc import MultipleChoice
from citer.data.tasks.task import Task

if TYPE_CHECKING:
    from collections.abc import Mapping

    from citer.data.problems import Problem

__all__ = ["TASKS", "Task", "known_task", "prompt_text"]

TASKS: "Mapping[str, Task]" = {task.name: task for task in (Math(), MultipleChoice())}


def known_task(name: str) -> str:
    """Return `name` if it is a task's. Raises ValueError."""
    if name not in TASKS:
        *others, last = map(repr, TASKS)
        raise ValueError(f"{name!r}: expected {', '.join(others)} or {last}")
    return name


def prompt_text(problem: "Problem") -> str:
    """Return the text of a problem's prompt, without special tokens."""
    return TASKS[problem.task].prompt_text(problem)
