"""Users' JSON and JSON Lines files: rows checked one by one and turned into problems."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal, NoReturn

from citer.config import Task
from citer.data.answers import boxed, grade
from citer.data.problems import Choice, Problem, problem_key
from citer.data.values import LONGEST
from citer.errors import InputError, read_text, shown
from citer.progress import progress

# How much a row must have: to train, to be graded, only to be asked.
Need = Literal["reference", "answer", "question"]

# Sentences, GSM8K's marks, or a box with text before it: no answer, which is one value.
RATIONALE = re.compile(r"####|<<|(?:\d|[a-z]{3})[.!?]\s+[A-Z][a-z]|\w\W*\\boxed")
LABEL_SETS = ("ABCDE", "1234")
HALF = re.compile(r"[\ud800-\udfff]")  # of a surrogate pair: \ud83d alone in JSON
UNESCAPED = {"\b": ("backspace", "b"), "\f": ("form feed", "f")}


class RowError(InputError):
    """A row that cannot be used: which field, what was found, what was expected."""

    def __init__(self, field: str, found: str, expected: str, where: str = "") -> None:
        place = f"{where}: {field}" if where else field
        super().__init__(f"{place}: {found}; expected {expected}")
        self.field, self.found, self.expected = field, found, expected

    def at(self, where: str) -> "RowError":
        return RowError(self.field, self.found, self.expected, where)


OnBadRow = Callable[[RowError], object]


def fail(error: RowError) -> NoReturn:
    """The default for bad rows; to skip them, give a list's `append` and report the list."""
    raise error


def load_problems(
    path: Path, task: str, need: Need, on_bad_row: OnBadRow = fail
) -> list[tuple[int, Problem]]:
    """The problems of a user's file by their lines, in its order; their split is still empty.

    Raises InputError where the file as a whole cannot be read. Rows that cannot be used go to
    `on_bad_row`, lines that are not JSON before the others.
    """
    rows = list(read_rows(path, on_bad_row))
    if not rows:
        raise InputError(f"{path}: no rows, expected a JSON array or JSON Lines")
    problems = []
    with progress(f"reading {path.name}", len(rows), "rows") as advance:
        for line, row in rows:
            try:
                problems.append((line, parse_row(row, task, need, source=path.name)))
            except RowError as error:
                on_bad_row(error.at(f"{path}:{line}"))
            advance(1)
    return problems


def read_rows(path: Path, on_bad_row: OnBadRow = fail) -> Iterator[tuple[int, Any]]:
    """Yield (line, row) of a JSON array or of JSON Lines, whatever the file's ending."""
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
            on_bad_row(RowError("row", found, "one JSON object a line", f"{path}:{number}"))
        else:
            yield number, row


def task_of(row: Any) -> Task:
    """The format says the task; raises RowError where it is neither's."""
    fields: dict[str, Task] = {"problem": "math", "question": "mc"}
    for field, task in fields.items():
        if isinstance(row, dict) and row.get(field) not in (None, ""):
            return task
    raise RowError("row", shown(row), "`problem` (math) or `question` (multiple choice) in it")


def parse_row(row: Any, task: str, need: Need, source: str = "") -> Problem:
    """One raw row as a problem without a split.

    Raises RowError where a field is missing or wrong, and where the reference, graded as a
    completion, is not correct.
    """
    if not isinstance(row, dict):
        raise RowError("row", shown(row), "a JSON object")
    if task == "math":
        field, problem = "solution", _math_problem(row, need, source)
    else:
        field, problem = "cot", _mc_problem(row, need, source)
    if problem.reference is not None and not grade(problem, problem.reference):
        found = f"ends {problem.reference[-60:]!r}"
        raise RowError(field, found, f"a text that the grader reads as {problem.answer!r}")
    return problem


def _math_problem(row: dict, need: Need, source: str) -> Problem:
    question = _text(row, "problem", "the problem")
    reference = _wanted(row, "solution", "a solution in training files", need == "reference")
    answer = _short_answer(row)
    if reference is not None:
        answer = answer or _final_answer(reference)
    if answer is None and need != "question":
        raise RowError("solution", "missing, and no `answer`", "either, to grade against")
    key = problem_key("math", question, None)
    return Problem(key, "math", question, None, reference, answer, source, split="")


def _short_answer(row: dict) -> str | None:
    answer = _wanted(row, "answer", "the final answer", False)
    if answer and (len(answer) > LONGEST or RATIONALE.search(answer)):
        found = f"a whole solution, ends {answer[-60:]!r}"
        raise RowError("answer", found, "the final answer alone, and the rest in `solution`")
    return answer


def _final_answer(solution: str) -> str:
    answer = boxed(solution)
    if not answer:
        found = f"no complete \\boxed{{}}, ends {solution[-60:]!r}"
        raise RowError("solution", found, "the final answer in its last \\boxed{}")
    return answer


def _mc_problem(row: dict, need: Need, source: str) -> Problem:
    question = _text(row, "question", "the question")
    choices = _choices(row.get("choices"))
    reference = _wanted(row, "cot", "a rationale in training files", need == "reference")
    answer = _wanted(row, "answerKey", "the right option's label", need != "question")
    labels = [choice.label for choice in choices]
    if answer is not None and answer not in labels:
        raise RowError("answerKey", repr(answer), f"one of {', '.join(labels)}")
    key = problem_key("mc", question, choices)
    return Problem(key, "mc", question, choices, reference, answer, source, split="")


def _choices(value: Any) -> tuple[Choice, ...]:
    if not isinstance(value, dict) or not all(_texts(value.get(key)) for key in ("text", "label")):
        raise RowError("choices", shown(value), '{"text": [texts], "label": [labels]}')
    labels, texts = value["label"], value["text"]
    if len(labels) != len(texts) or len(labels) < 2:
        raise RowError(
            "choices", f"{len(labels)} labels, {len(texts)} texts", "a label a text, 2 at least"
        )
    if len({*labels}) != len(labels) or not any({*labels} <= {*known} for known in LABEL_SETS):
        raise RowError("choices.label", shown(labels), "different labels of A-E or of 1-4")
    return tuple(
        Choice(label, _clean("choices.text", text))
        for label, text in zip(labels, texts, strict=True)
    )


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(v, str) and v.strip() for v in value)


def _wanted(row: dict, field: str, expected: str, required: bool) -> str | None:
    """A text that may be absent, null or empty unless it is required."""
    if not required and row.get(field) in (None, ""):
        return None
    return _text(row, field, expected)


def _text(row: dict, field: str, expected: str) -> str:
    value = row.get(field)
    if value is None:
        raise RowError(field, "missing", expected)
    if not isinstance(value, str) or not value.strip():
        raise RowError(field, shown(value), f"a text: {expected}")
    return _clean(field, value)


def _clean(field: str, value: str) -> str:
    """Without the space around it; raises RowError for what is left of a torn text."""
    for character, (name, letter) in UNESCAPED.items():
        if match := re.search(character + r"\w*", value):
            found = f"a {name} before {match.group()[1:]!r}: its backslash was not escaped in JSON"
            raise RowError(field, found, f"'\\\\{letter}{match.group()[1:]}'")
    if match := HALF.search(value):
        raise RowError(field, f"{match.group()!r}, half a character", "whole Unicode text")
    return value.strip()
