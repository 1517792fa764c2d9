"""Read users' JSON and JSON Lines files: check each row and turn it into a problem."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from citer.data.messages import with_earlier_turns, with_question
from citer.data.problems import Problem
from citer.data.tasks import TASKS, find_task, known_task
from citer.data.tasks.grading import assess
from citer.data.tasks.rows import Requires, RowError
from citer.errors import InputError, read_text, shown
from citer.progress import progress

# The tasks import these modules lazily; see `citer.data.tasks.grading.GRADER_MODULES`.
ROW_MODULES = (
    "citer.data.tasks.math.rows",
    "citer.data.tasks.mc.rows",
    "citer.data.tasks.own.rows",
    "citer.data.tasks.plain.rows",
)

OnBadRow = Callable[[RowError], object]


def fail(error: RowError) -> NoReturn:
    """Raise the error of a bad row. To skip bad rows instead, pass the `append` of a list."""
    raise error


def load_problems(
    path: Path, task: str, requires: Requires, on_bad_row: OnBadRow = fail
) -> list[tuple[int, Problem]]:
    """Return (line, problem) for each row of a file, in order. The split of a problem is empty.

    `on_bad_row` gets the error of each bad row, and those of lines that are not JSON before all
    others. Raises InputError if the file cannot be read or has no rows.
    """
    rows = list(read_rows(path, on_bad_row))
    if not rows:
        raise _no_rows(path)
    problems = []
    with progress(f"reading {path.name}", len(rows), "rows") as advance:
        for line, row in rows:
            try:
                problems.append((line, parse_row(row, task, requires, source=path.name)))
            except RowError as error:
                on_bad_row(error.at(f"{path}:{line}"))
            advance(1)
    return problems


def _no_rows(path: Path) -> InputError:
    return InputError(f"{path}: no rows, expected a JSON array or JSON Lines")


def read_rows(path: Path, on_bad_row: OnBadRow = fail) -> Iterator[tuple[int, Any]]:
    """Yield (line, row) from a JSON array or JSON Lines. The content decides, not the suffix."""
    text = read_text(path)
    if text.lstrip().startswith("["):
        yield from _array_rows(path, text)
    else:
        yield from _line_rows(path, text, on_bad_row)


def _array_rows(path: Path, text: str) -> Iterator[tuple[int, Any]]:
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not a JSON array: {error}") from None
    decoder = json.JSONDecoder()
    line, end = 1, 0
    start = text.index("[") + 1
    while text[start := _element_start(text, start)] != "]":
        line += text.count("\n", end, start)
        row, end = decoder.raw_decode(text, start)
        yield line, row
        line, start = line + text.count("\n", start, end), end


def _element_start(text: str, start: int) -> int:
    return next(i for i in range(start, len(text)) if text[i] not in " \t\r\n,")


def _line_rows(path: Path, text: str, on_bad_row: OnBadRow) -> Iterator[tuple[int, Any]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            found = f"not JSON: {error}"
            on_bad_row(RowError("row", found, "one JSON object per line", f"{path}:{number}"))
        else:
            yield number, row


def task_of_file(path: Path) -> str:
    """Return the task of a file's first row. Raises InputError if no task has such rows."""
    for line, row in read_rows(path):
        try:
            return task_of(row)
        except RowError as error:
            raise error.at(f"{path}:{line}") from None
    raise _no_rows(path)


def task_of(row: Any) -> str:
    """Return the task that a row names in `task`; else the first whose first field it has.

    Raises RowError.
    """
    if not isinstance(row, dict):
        raise _no_task(row)
    if named := row.get("task"):
        return _named(named)
    row = with_question(row)
    for name, task in TASKS.items():
        if row.get(task.fields[0]) not in (None, ""):
            return name
    raise _no_task(row)


def _named(value: Any) -> str:
    try:
        return known_task(str(value))
    except ValueError as error:
        expected = str(error).rpartition(": expected ")[2]
        raise RowError("task", shown(value), expected) from None


def _no_task(row: Any) -> RowError:
    first: dict[str, str] = {}
    for name, task in TASKS.items():
        first.setdefault(task.fields[0], name)
    fields = [f"`{field}` ({name})" for field, name in first.items()]
    return RowError("row", shown(row), f"the field {' or '.join(fields)}, or a `task`")


def parse_row(row: Any, task: str, requires: Requires, source: str = "") -> Problem:
    """Turn a raw row into a problem without a split.

    Raises RowError if a field is missing or wrong, or if the grader finds the reference wrong.
    """
    if not isinstance(row, dict):
        raise RowError("row", shown(row), "a JSON object")
    problem = find_task(task).problem(with_question(row, task), requires, source)
    if problem.reference is not None:
        _check_reference(problem, problem.reference)
    return with_earlier_turns(problem, row)


def _check_reference(problem: Problem, reference: str) -> None:
    correct, share, failure = assess(problem, reference)
    if correct:
        return
    field = find_task(problem.task).reference_field
    if failure:
        raise RowError(field, f"its grader failed: {failure}", "a grade")
    grade = f" (share {share:.2f})" if share else ""
    found = f"ends {reference[-60:]!r}{grade}"
    raise RowError(field, found, f"a text that the grader reads as {problem.answer!r}")
