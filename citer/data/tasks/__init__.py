"""The tasks, by name. A task is a row format, a prompt and a grader.

`TASKS` are the built-in ones. `find_task` also knows tasks of the user, `python:FILE:CLASS`.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from citer.data.tasks.math import Math, Number
from citer.data.tasks.multiple_choice import MultipleChoice
from citer.data.tasks.own import FORM, PREFIX, own_task, place
from citer.data.tasks.plain import Contains, Exact, Json, Open
from citer.data.tasks.task import Task

# The order counts: a row without `task` belongs to the first task whose first field it has.
TASKS: Mapping[str, Task] = {
    task.name: task
    for task in (Math(), MultipleChoice(), Number(), Exact(), Contains(), Json(), Open())
}
EmbeddedTask = Literal["math", "mc"]
EMBEDDED_TASKS: tuple[str, ...] = get_args(EmbeddedTask)


def find_task(name: str) -> Task:
    """Return a task by its name. The file of a user's task is imported once.

    Raises ValueError if there is no such task, and InputError if the user's file cannot be used.
    """
    return TASKS.get(name) or own_task(known_task(name))


def known_task(name: str) -> str:
    """Return `name`. Raises ValueError unless a task, or a user's, may be named so."""
    if name.startswith(PREFIX):
        place(name)
    elif name not in TASKS:
        raise ValueError(f"{name!r}: expected {', '.join(map(repr, TASKS))} or {FORM}")
    return name


def in_order(tasks: Sequence[str]) -> list[str]:
    """Return the tasks in the order in which rows are recognised: a user's tasks come last."""
    return sorted(tasks, key=[*TASKS, *tasks].index)


def task_label(name: str) -> str:
    """Return the name of a task as reports show it: of a user's task, the class alone."""
    return name.rpartition(":")[2]
