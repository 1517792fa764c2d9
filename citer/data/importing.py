"""Turn the rows of users' files into problems: recognise their format and check each row."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console

from citer.data.files import OnBadRow, fail, read_rows
from citer.data.problems import Problem
from citer.data.tasks import TASKS
from citer.data.tasks.formats import Format, given
from citer.data.tasks.grading import grade
from citer.data.tasks.rows import Requires, RowError
from citer.errors import InputError, shown
from citer.progress import progress

# The tasks import these modules lazily; see `citer.data.tasks.grading.GRADER_MODULES`.
ROW_MODULES = (
    "citer.data.tasks.math.formats",
    "citer.data.tasks.math.rows",
    "citer.data.tasks.mc.formats",
    "citer.data.tasks.mc.rows",
)


class RowKind(NamedTuple):
    """The task and the format of a row. A task without formats has None."""

    task: str
    format: Format | None

    @property
    def name(self) -> str:
        return self.format.name if self.format else self.task

    @property
    def signs(self) -> str:
        return self.format.signs if self.format else f"`{TASKS[self.task].fields[0]}`"

    def __str__(self) -> str:
        return f"{self.name} rows (recognised by {self.signs})"

    def fits(self, row: dict[str, Any]) -> bool:
        return self.format.fits(row) if self.format else given(row, TASKS[self.task].fields[0])


class RowReader:
    """Turns the rows of one file into problems. All must be of one kind.

    A `format` that is named, or a `task` without formats, decides the kind. Otherwise it is that of
    the first row that has the fields of a format of the task, or of any task.
    """

    def __init__(
        self, task: str | None, requires: Requires, source: str = "", format: str | None = None
    ) -> None:
        self.requires, self.source = requires, source
        self.kinds = list(_kinds([task] if task else TASKS))
        self.kind: RowKind | None = None
        self.said = "`format` says"
        if task and format:
            self.kind = RowKind(task, TASKS[task].format_named(format))
        elif task and not TASKS[task].formats():
            [self.kind] = self.kinds
        self.recognises = self.kind is None

    def problem(self, row: Any, line: int) -> Problem:
        """Return the problem of a row. Raises RowError."""
        if not isinstance(row, dict):
            raise RowError("row", shown(row), "a JSON object")
        if not self.kind:
            self.kind, self.said = recognised(row, self.kinds), f"line {line} looks like"
        try:
            return parse_row(row, self.kind.task, self.requires, self.source, self.kind.format)
        except RowError as error:
            raise self._hinted(error, row, self.kind) from None

    def _hinted(self, error: RowError, row: dict[str, Any], kind: RowKind) -> RowError:
        """Add to the error that the row looks like one of another kind, if it does."""
        other = next((other for other in self.kinds if other.fits(row)), kind)
        if other.name == kind.name:
            return error
        hint = f"this row looks like {other.name}, but {self.said} {kind.name}"
        return RowError(error.field, error.found, f"{error.expected} ({hint})")


def load_problems(
    path: Path,
    task: str | None,
    requires: Requires,
    on_bad_row: OnBadRow = fail,
    format: str | None = None,
) -> list[tuple[int, Problem]]:
    """Return (line, problem) for each row of a file, in order. The split of a problem is empty.

    If `task` or `format` is None, it is recognised (see `RowReader`) and printed in one line.
    `on_bad_row` gets the error of each bad row. Raises InputError if the file cannot be read or
    has no rows.
    """
    reader = RowReader(task, requires, path.name, format)
    problems, empty = [], True
    with progress(f"reading {path.name}", None, "rows") as advance:
        for line, row in read_rows(path, on_bad_row):
            empty = False
            try:
                problems.append((line, reader.problem(row, line)))
            except RowError as error:
                on_bad_row(error.at(f"{path}:{line}"))
            advance(1)
    if empty:
        raise InputError(f"{path}: no rows, expected JSON, JSON Lines, Parquet or CSV")
    if reader.recognises and reader.kind:
        _say(f"{path}: {len(problems):,} {reader.kind}")
    return problems


def _say(text: str) -> None:
    Console().print(text, markup=False, highlight=False, soft_wrap=True)


def _kinds(tasks: Iterable[str]) -> Iterator[RowKind]:
    for task in tasks:
        for format in TASKS[task].formats() or (None,):
            yield RowKind(task, format)


def task_of(row: Any) -> str:
    """Return the name of the task that a row belongs to. Raises RowError."""
    return recognised(row, list(_kinds(TASKS))).task


def recognised(row: Any, kinds: list[RowKind]) -> RowKind:
    """Return the first kind whose fields a row has. Raises RowError."""
    for kind in kinds:
        if isinstance(row, dict) and kind.fits(row):
            return kind
    *others, last = dict.fromkeys(f"{kind.signs} ({kind.name})" for kind in kinds)
    fields = f"{', '.join(others)} or {last}" if others else last
    raise RowError("row", shown(row), fields)


def parse_row(
    row: Any, task: str, requires: Requires, source: str = "", format: Format | None = None
) -> Problem:
    """Turn a raw row into a problem without a split.

    Raises RowError if a field is missing or wrong, or if the grader finds the reference wrong.
    """
    if not isinstance(row, dict):
        raise RowError("row", shown(row), "a JSON object")
    if not format:
        return _graded(row, task, requires, source)
    try:
        return _graded(format.rewrite(row, requires), task, requires, source)
    except RowError as error:
        field = error.field if error.field in row else format.fields.get(error.field, error.field)
        raise RowError(field, error.found, error.expected) from None


def _graded(row: dict[str, Any], task: str, requires: Requires, source: str) -> Problem:
    problem = TASKS[task].problem(row, requires, source)
    if problem.reference is not None and not grade(problem, problem.reference):
        found = f"ends {problem.reference[-60:]!r}"
        expected = f"a text that the grader reads as {problem.answer!r}"
        raise RowError(TASKS[task].reference_field, found, expected)
    return problem
