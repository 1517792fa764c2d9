"""JSON with very many levels of brackets is refused as a row, and unread as an answer."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from citer.data.importing import load_problems, parse_row
from citer.data.tasks import TASKS
from citer.data.tasks.grading import Grade, assess
from citer.data.tasks.rows import RowError
from citer.errors import InputError


def nested(depth: int, kind: str) -> str:
    opening, closing = {"[": ("[", "]"), "{": ('{"a":', "}")}[kind]
    return opening * depth + "[]" + closing * depth


def row(answer: Any) -> dict[str, Any]:
    return {"question": "Which?", "answer": answer}


@pytest.mark.parametrize("kind", "[{")
def test_a_deep_answer_is_refused_and_a_deep_completion_is_unread(kind: str) -> None:
    deep = nested(100_000, kind)
    with pytest.raises(RowError, match=r"^answer: .*; expected a JSON value"):
        parse_row(row(deep), "json", "reference")
    problem = parse_row(row('{"a": 1}'), "json", "reference")
    assert assess(problem, deep) == Grade(False, 0.0)
    assert not TASKS["json"].same(problem, deep, f"Here: {deep}")


@pytest.mark.parametrize("kind", "[{")
def test_values_of_many_levels_are_compared(kind: str) -> None:
    deep = nested(100, kind)
    for answer in (deep, json.loads(deep)):
        problem = parse_row(row(answer), "json", "reference")
        assert assess(problem, deep).correct
    assert TASKS["json"].same(problem, deep, f"Here: {deep}")


@pytest.mark.parametrize("depth", [1_000, 100_000])
@pytest.mark.parametrize("field", ["question", "answer"])
def test_a_deep_row_of_a_file_is_refused_in_one_line(
    written: Callable[[str], Path], depth: int, field: str
) -> None:
    text = json.dumps(row("1") | {"task": "json", field: "DEEP"})
    path = written(text.replace('"DEEP"', nested(depth, "[")))
    with pytest.raises(InputError, match=rf"^{path}:1: (row|{field}): .*; expected"):
        list(load_problems(path, ("json",), requires="question"))
