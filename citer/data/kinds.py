"""Recognise what the rows of a file are: their task, and the format of that task."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from citer.data.messages import with_question
from citer.data.tasks import find_task, known_task
from citer.data.tasks.formats import Format, given
from citer.data.tasks.rows import RowError
from citer.errors import shown


class RowKind(NamedTuple):
    """The task and the format of a row. A task without formats has None."""

    task: str
    format: Format | None

    @property
    def name(self) -> str:
        return self.format.name if self.format else self.task

    @property
    def signs(self) -> str:
        """How rows of this kind are recognised."""
        return self.format.signs if self.format else f"`{find_task(self.task).fields[0]}`"

    def fits(self, row: dict[str, Any]) -> bool:
        if self.format:
            return self.format.fits(row)
        return given(row, *find_task(self.task).fields[:1])


def row_kinds(tasks: Iterable[str]) -> Iterator[RowKind]:
    """Yield the kinds of rows of each task; within a task, the more specific ones first."""
    for task in tasks:
        for format in find_task(task).formats() or (None,):
            yield RowKind(task, format)


def recognised(row: Any, tasks: Sequence[str]) -> RowKind:
    """Return the first kind of row that fits. A row may name its `task`. Raises RowError."""
    if isinstance(row, dict) and len(tasks) > 1 and row.get("task"):
        tasks = (_named(row["task"]),)
    kinds = list(row_kinds(tasks))
    if isinstance(row, dict):
        asked = with_question(row, tasks[0] if len(tasks) == 1 else None)
        if fitting := next((kind for kind in kinds if kind.fits(asked)), None):
            return fitting
    raise RowError("row", shown(row), _expected(kinds))


def _named(value: Any) -> str:
    try:
        return known_task(str(value))
    except ValueError as error:
        expected = str(error).rpartition(": expected ")[2]
        raise RowError("task", shown(value), expected) from None


def _expected(kinds: Iterable[RowKind]) -> str:
    """Name the signs of each kind. If two kinds have the same, the first is recognised."""
    names: dict[str, str] = {}
    for kind in kinds:
        names.setdefault(kind.signs, kind.name)
    shapes = [f"{signs} ({name})" for signs, name in names.items()]
    return " or ".join([", ".join(shapes), "the name of a `task`"] if shapes[1:] else shapes)
