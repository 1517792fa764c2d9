"""Recognise what the rows of a file are: their task, and the format of that task."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from citer.data.messages import with_question
from citer.data.tasks import find_task, in_order
from citer.data.tasks.rows import Format, RowError
from citer.errors import shown


class RowKind(NamedTuple):
    task: str
    format: Format


def row_kinds(tasks: Iterable[str]) -> Iterator[RowKind]:
    """Yield the kinds of rows of each task; within a task, the more specific ones first."""
    for task in in_order(tasks):
        for format in find_task(task).row_formats:
            yield RowKind(task, format)


def recognised(row: Any, tasks: Sequence[str]) -> RowKind:
    """Return the first kind of row that fits, of the task that the row names in `task` if it does.

    If there is one task only, `task` is a field like any other, and a user's task takes any row.
    Raises RowError.
    """
    if len(tasks) > 1 and isinstance(row, dict) and (named := row.get("task")):
        if named not in tasks:
            raise RowError("task", shown(named), ", ".join(map(repr, tasks)))
        return recognised(row, [named])
    kinds = list(row_kinds(tasks))
    if isinstance(row, dict):
        if len(tasks) == 1 and not find_task(tasks[0]).fields:
            return kinds[0]
        asked = with_question(row, tasks)
        if fitting := next((kind for kind in kinds if kind.format.fits(asked)), None):
            return fitting
    naming = ", or a `task`" if len(tasks) > 1 else ""
    raise RowError("row", shown(row), f"{_expected(kinds)}{naming}")


def _expected(kinds: Iterable[RowKind]) -> str:
    """Name the signs of each kind. If two kinds have the same, the first is recognised."""
    names: dict[str, str] = {}
    for kind in kinds:
        names.setdefault(kind.format.signs, kind.format.name)
    *others, last = (f"{signs} ({name})" for signs, name in names.items())
    return f"{', '.join(others)} or {last}" if others else last
