"""Turn the rows of users' files into problems: recognise their format and check each row."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from citer.data.files import OnBadRow, fail, read_rows
from citer.data.problems import Message, Problem, problem_key
from citer.data.tasks import find_task, in_order
from citer.data.tasks.grading import assess
from citer.data.tasks.rows import Format, Requires, RowError, text
from citer.errors import InputError, shown
from citer.progress import progress, say

Needs = Requires | Callable[[Problem], Requires]  # of all rows, or of a row with this question
ROLES = ("system", "user", "assistant")
READ = ("answer", "answerKey", "messages", "task")  # besides the fields of a task
TURNS = {"role", "content"}
TURN = '{"role": "user", "content": "…"}'


class RowKind(NamedTuple):
    task: str
    format: Format


def recognised(row: Any, tasks: Sequence[str]) -> RowKind:
    """Return the first kind of row that fits. Raises RowError.

    Of several tasks, a row may name its own in `task`. If there is one task only, a task without
    formats takes any row.
    """
    if not isinstance(row, dict):
        raise RowError("row", shown(row), "a JSON object")
    if len(tasks) > 1 and (named := row.get("task")):
        if named not in tasks:
            raise RowError("task", shown(named), ", ".join(map(repr, tasks)))
        return recognised(row, [named])
    kinds = [
        RowKind(task, format) for task in in_order(tasks) for format in find_task(task).row_formats
    ]
    if len(tasks) == 1 and not find_task(tasks[0]).formats:
        return kinds[0]
    asked = _with_question(row, tasks)
    if fitting := next((kind for kind in kinds if kind.format.fits(asked)), None):
        return fitting
    names: dict[str, str] = {}  # if two kinds have the same signs, the first is recognised
    for kind in kinds:
        names.setdefault(kind.format.signs, kind.format.name)
    *others, last = (f"{signs} ({name})" for signs, name in names.items())
    expected = f"{', '.join(others)} or {last}" if others else last
    raise RowError("row", shown(row), f"{expected}{', or a `task`' if len(tasks) > 1 else ''}")


def load_problems(
    path: Path, tasks: Sequence[str], requires: Needs, on_bad_row: OnBadRow = fail
) -> list[tuple[int, Problem]]:
    """Return (line, problem) for each row of a file, in order. The split of a problem is empty.

    The format of each row is recognised, and printed in a line. `on_bad_row` gets the error of each
    bad row. If no row has an answer, the fields that no task reads are printed. Raises InputError
    if the file cannot be read or has no rows.
    """
    problems, kinds, line = list[tuple[int, Problem]](), Counter[tuple[str, str]](), 0
    names = set[str]()
    with progress(f"reading {path.name}", None, "rows") as advance:
        for line, row in read_rows(path, on_bad_row):
            try:
                kind = recognised(row, tasks)
                problem = parse_row(row, kind.task, requires, path.name, kind.format)
                problems.append((line, problem))
                kinds[kind.format.name, kind.format.signs] += 1
                names |= row.keys()
            except RowError as error:
                on_bad_row(error.at(f"{path}:{line}"))
            advance(1)
    if not line:
        raise InputError(f"{path}: no rows, expected JSON, JSON Lines, Parquet or CSV")
    if len(tasks) > 1 or find_task(tasks[0]).formats:
        for (name, signs), count in kinds.items():
            say(f"{path}: {count:,} {name} rows (recognised by {signs})")
    for task in map(find_task, tasks):  # a class of the user may read any field
        names -= {*READ, *task.fields, task.reference_field} if task.fields else names
    if names and all(problem.answer is None for _, problem in problems):
        say(f"{path}: no row has an answer; fields that are not read: {shown(sorted(names))}")
    return problems


def parse_row(
    row: dict[str, Any],
    task: str,
    requires: Needs,
    source: str = "",
    format: Format | None = None,
    *,
    answered: bool = True,
) -> Problem:
    """Turn a raw row into a problem without a split. Without a `format`, it is the task's own.

    Raises RowError if a field is missing or wrong, or if the grader finds the reference wrong.
    Unless `answered`, reference and answer are not read, since grading may take long.
    """
    found = find_task(task)
    fields = found.fields
    try:
        own = _with_question(row, [task])
        own = format.rewrite(own) if format else own
        if not answered and fields:
            kept = fields if requires == "question" else (*fields, "answer")
            own = {field: own.get(field) for field in kept}
        problem = found.problem(own, source)
        if answered and None not in (problem.reference, problem.answer):
            _check_reference(problem)
        if fields and (earlier := tuple(_turns(row)[:-1])):  # another question
            key = problem_key(task, problem.question, problem.choices, earlier)
            problem = replace(problem, problem_id=key, messages=earlier)
        found.check(problem, requires(problem) if callable(requires) else requires)
    except RowError as error:
        if not format or error.field in row:
            raise
        given = format.fields.get(error.field, error.field)  # the field's name in the raw row
        raise RowError(given, error.found, error.expected) from None
    return problem


def parse_question(row: Any, tasks: Sequence[str], answer: str | None = None) -> Problem:
    """Turn a raw row of one of `tasks`, in any of their formats, into a problem to answer.

    It has the right `answer`, as the task's own rows give it, if it is given. Raises RowError.
    """
    task, format = recognised(row, tasks)
    if answer is None:
        return parse_row(row, task, "question", format=format, answered=False)
    return parse_row(row | {"answer": answer}, task, "answer", format=format, answered=False)


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


def _with_question(row: dict[str, Any], tasks: Sequence[str]) -> dict[str, Any]:
    """Return a row whose field of the question has the text of the last turn, if it has turns.

    The field is of that task with most fields whose others the row has. A user's class reads its
    rows itself. Raises RowError.
    """
    all_fields = [fields for task in in_order(tasks) if (fields := find_task(task).fields)]
    turns = _turns(row) if all_fields else ()
    if not turns:
        return row
    fitting = (each for each in all_fields if {*each[1:]} <= row.keys())
    field = max(fitting, key=len, default=all_fields[0])[0]
    if row.get(field) not in (None, ""):
        raise RowError(field, "given besides `messages`", "one of both")
    return row | {field: turns[-1].content}


def _turns(row: dict[str, Any]) -> Sequence[Message]:
    """Return the checked turns of a row, none if it has no `messages`. Raises RowError."""
    value = row.get("messages")
    if value is None:
        return []
    if not isinstance(value, list) or not value:
        raise RowError("messages", shown(value), f"a list of turns such as {TURN}")
    turns = [_turn(each, f"messages.{place}") for place, each in enumerate(value)]
    for place, turn in enumerate(turns):
        if turn.role == "system" and place:
            raise RowError(f"messages.{place}.role", "'system'", "a system turn only at the start")
    if turns[-1].role != "user":
        raise RowError(f"messages.{len(turns) - 1}.role", repr(turns[-1].role), "'user' at the end")
    return turns


def _turn(value: Any, place: str) -> Message:
    if not isinstance(value, dict) or {k for k, own in value.items() if own is not None} - TURNS:
        raise RowError(place, shown(value), f"a turn such as {TURN}")
    role, field = value.get("role"), f"{place}.content"
    if role not in ROLES:
        raise RowError(f"{place}.role", shown(role), ", ".join(map(repr, ROLES)))
    if role == "assistant" and value.get("content") == "":  # an answer that was cut off
        return Message(role, "")
    return Message(role, text({field: value.get("content")}, field, "the text of a turn"))
