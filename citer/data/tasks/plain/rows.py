"""Rows {"question", "answer", "reference"}. Without a reference, the answer is the reference.

Rows of `open` have no answer.
"""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from citer.data.problems import Problem, problem_key
from citer.data.tasks.plain.values import loads
from citer.data.tasks.rows import Requires, RowError, clean, text, text_if
from citer.errors import shown


class Answer(NamedTuple):
    """The answer as the grader reads it, and the shortest completion that is right."""

    text: str
    completion: str


def problem(task: str, row: dict[str, Any], requires: Requires, source: str) -> Problem:
    """Turn a raw row into a problem. Raises RowError."""
    question = text(row, "question", "the question")
    answer = _answer(task, row, requires)
    needs_text = requires == "reference" and answer is None
    given = text_if(row, "reference", "a right completion", required=needs_text)
    reference = given or (answer.completion if answer else None)
    key = problem_key(task, question, None)
    own = answer and answer.text
    return Problem(key, task, question, None, reference, own, source, split="")


def _answer(task: str, row: dict[str, Any], requires: Requires) -> Answer | None:
    if task not in READERS:
        if requires == "answer":
            expected = "a task with a grader, or evaluate.against: llm"
            raise RowError("answer", f"not read by the task {task}", expected)
        return None
    read, expected = READERS[task]
    value = row.get("answer")
    if value in (None, "") and requires == "question":
        return None
    if value is None:
        raise RowError("answer", "missing", expected)
    answer = read(value)
    if answer is None:
        raise RowError("answer", shown(value), expected)
    return answer


def _one(value: Any) -> Answer | None:
    if not isinstance(value, str) or not value.strip():
        return None
    plain = clean("answer", value)
    return Answer(plain, plain)


def _accepted(value: Any) -> Answer | None:
    """Read one text or a list of texts. Each is a line of the answer."""
    values = value if isinstance(value, list) else [value]
    answers = [_one(each) for each in values]
    if not answers or None in answers:
        return None
    lines = [" ".join(answer.text.split()) for answer in answers if answer]
    return Answer("\n".join(lines), lines[0])


def _json(value: Any) -> Answer | None:
    try:
        content = loads(value if isinstance(value, str) else json.dumps(value))
        written = json.dumps(content, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):  # TypeError: a date or bytes, from Parquet
        return None
    plain = clean("answer", written)
    return Answer(plain, plain)


READERS: dict[str, tuple[Callable[[Any], Answer | None], str]] = {
    "exact": (_one, "a text: the answer"),
    "contains": (_accepted, "a text, or a list of texts: each is a right answer"),
    "json": (_json, "a JSON value, or a text that is JSON"),
}
