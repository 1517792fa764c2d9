"""Turn the rows of users' files into problems: recognise their format and check each row."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from citer.data.files import OnBadRow, fail, read_rows
from citer.data.messages import with_earlier_turns, with_question
from citer.data.problems import Problem
from citer.data.tasks import find_task, in_order
from citer.data.tasks.grading import assess
from citer.data.tasks.rows import Format, Requires, RowError
from citer.errors import InputError, shown
from citer.progress import progress, say

Needs = Requires | Callable[[Problem], Requires]  # of all rows, or of a row with this question


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


class RowReader:
    """Turns the rows of one file into problems. All must be of one kind: task and format.

    `kind` is None until the first row that has the fields of a format of one of `tasks`. That row
    decides it. With a named `format`, which needs a single task, nothing is recognised. `requires`
    may depend on the problem, which then is read without its reference and answer if need be.
    """

    def __init__(
        self, tasks: Sequence[str], requires: Needs, source: str = "", format: str | None = None
    ) -> None:
        self.tasks, self.requires, self.source = tasks, requires, source
        self.said = "`format` says"
        self.kind: RowKind | None = None
        first = find_task(tasks[0])
        if format:
            self.kind = RowKind(first.name, first.format_named(format))
        elif len(tasks) == 1 and not first.formats:
            self.kind = RowKind(first.name, *first.row_formats)
        self.signs = ""  # by which the kind was recognised

    def problem(self, row: Any, line: int) -> Problem:
        """Return the problem of a row. Raises RowError."""
        if not isinstance(row, dict):
            raise RowError("row", shown(row), "a JSON object")
        if not self.kind:
            self.kind, self.said = recognised(row, self.tasks), f"line {line} looks like"
            asked = "; `messages` give the question" if row.get("messages") else ""
            self.signs = f"{self.kind.format.signs}{asked}"
        named, task = row.get("task"), self.kind.task
        if len(self.tasks) > 1 and named and named != task:
            raise RowError("task", shown(named), f"{task!r} in each row of this file")
        try:
            return self._read(row, self.kind)
        except RowError as error:
            raise self._hinted(error, row, self.kind) from None

    def _read(self, row: dict[str, Any], kind: RowKind) -> Problem:
        def read(requires: Requires) -> Problem:
            return parse_row(row, kind.task, requires, self.source, kind.format)

        if not callable(self.requires):
            return read(self.requires)
        problem = read("question")
        needed = self.requires(problem)
        lacks = None in (problem.reference, problem.answer)
        return read(needed) if lacks and needed != "question" else problem

    def _hinted(self, error: RowError, row: dict[str, Any], kind: RowKind) -> RowError:
        """Add to the error that the row looks like one of another kind, if it does."""
        kinds = (kind.format for kind in row_kinds(self.tasks) if kind.format.fits(row))
        other = next(kinds, kind.format).name
        if other == kind.format.name:
            return error
        hint = f"this row looks like {other}, but {self.said} {kind.format.name}"
        return RowError(error.field, error.found, f"{error.expected} ({hint})")


def load_problems(
    path: Path,
    tasks: Sequence[str],
    requires: Needs,
    on_bad_row: OnBadRow = fail,
    format: str | None = None,
) -> list[tuple[int, Problem]]:
    """Return (line, problem) for each row of a file, in order. The split of a problem is empty.

    What is not given by a single task and its `format` is recognised (see `RowReader`) and printed
    in one line. `on_bad_row` gets the error of each bad row. Raises InputError if the file cannot
    be read or has no rows.
    """
    reader = RowReader(tasks, requires, path.name, format)
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
    if reader.signs and reader.kind:
        rows = f"{len(problems):,} {reader.kind.format.name} rows"
        say(f"{path}: {rows} (recognised by {reader.signs})")
    return problems


def parse_row(
    row: dict[str, Any],
    task: str,
    requires: Requires,
    source: str = "",
    format: Format | None = None,
    *,
    answered: bool = True,
) -> Problem:
    """Turn a raw row into a problem without a split. Without a `format`, it is the task's own.

    Raises RowError if a field is missing or wrong, or if the grader finds the reference wrong.
    Unless `answered`, reference and answer are not read, since grading may take long.
    """
    fields = find_task(task).fields
    try:
        own = with_question(row, [task])
        own = format.rewrite(own, requires) if format else own
        if not answered and fields:
            own = {field: own.get(field) for field in fields}
        problem = find_task(task).problem(own, requires, source)
        if answered and None not in (problem.reference, problem.answer):
            _check_reference(problem)
    except RowError as error:
        if not format or error.field in row:
            raise
        given = format.fields.get(error.field, error.field)  # the field's name in the raw row
        raise RowError(given, error.found, error.expected) from None
    return with_earlier_turns(problem, row)


def parse_question(row: Any, tasks: Sequence[str]) -> Problem:
    """Turn a raw row of one of `tasks`, in any of their formats, into a problem without an answer.

    Raises RowError.
    """
    task, format = recognised(row, tasks)
    return parse_row(row, task, "question", format=format, answered=False)


def _check_reference(problem: Problem) -> None:
    reference = problem.reference or ""
    correct, share, failure = assess(problem, reference)
    if correct:
        return
    field = find_task(problem.task).reference_field
    if failure:
        raise RowError(field, f"its grader failed: {failure}", "a grade")
    grade = f" (share {share:.2f})" if share else ""
    found = f"ends {reference[-60:]!r}{grade}"
    raise RowError(field, found, f"a text that the grader reads as {problem.answer!r}")
