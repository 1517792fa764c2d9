"""Tasks of the user: a class in a Python file under `data/own`, named `python:FILE:CLASS`.

The class is created without arguments. `docs/own-data.md` describes its methods (`problem`,
`prompt`, `message`, `grade` and `same`) and attributes (`own_source.Limits`), with an example.

Import, `problem`, `prompt` and `message` run in the processes of citer and must give the same
result whenever they are called. `grade` and `same` run in a process of their own, shut in by
`citer.data.tasks.own_box`.
"""

from functools import cache
from os.path import normpath
from pathlib import Path, PurePath
from typing import Any, ClassVar

from citer.data.problems import Problem, problem_key
from citer.data.tasks.own_grader import Grader
from citer.data.tasks.own_source import Source
from citer.data.tasks.rows import Row, RowError, clean
from citer.data.tasks.task import Task
from citer.errors import InputError, shown

OWN = PurePath("data/own")  # the folder of the user's files, which DVC tracks
PREFIX = "python:"
FORM = f"{PREFIX}{OWN}/FILE.py:CLASS"
FIELDS = ("question", "answer", "reference")


class OwnTask(Task):
    """A task whose problems, prompts and grades come from a class of the user."""

    fields = ()
    reference_field = "reference"
    reference_text = answer_text = "a text that problem() makes of the row"
    templates = ()
    example: ClassVar = {}

    def __init__(self, name: str) -> None:
        """Import the class. Raises InputError if it cannot be used."""
        self.name = name
        self.source = Source(*place(name))
        self.pass_share = self.source.limits.pass_share
        self.graded = self.source.has("grade")
        self.right_is_same = self.source.has("same")  # else those of the same words are
        self.digest = self.source.digest
        self._grader = Grader(self.source)

    def problem(self, row: Row, source: str) -> Problem:
        """Turn a raw row into a problem, and try its prompt. A task may have no grader."""
        fields = self._fields(row)
        question = _text(fields, "question", required=True) or ""
        answer, reference = _text(fields, "answer"), _text(fields, "reference")
        if answer is not None and not self.graded:
            found = f"problem() made {shown(answer)}"
            raise RowError("answer", found, "a method grade() to read it")
        key = problem_key(self.name, question, None)
        made = Problem(key, self.name, question, None, reference, answer, source, split="")
        self._check_prompts(made)
        return made

    def _fields(self, row: Row) -> dict[str, Any]:
        expected = f"a dict with {', '.join(FIELDS)}"
        try:
            made = self.source.call("problem", row)
        except InputError as error:
            raise RowError("row", str(error), expected) from None
        if not isinstance(made, dict) or not set(made) <= set(FIELDS):
            raise RowError("row", f"problem() returned {shown(made)}", expected)
        return made

    def _check_prompts(self, problem: Problem) -> None:
        for method, write in (("prompt()", self.prompt_text), ("message()", self.message_text)):
            try:
                written = write(problem)
            except InputError as error:
                raise RowError(method, str(error), "a text") from None
            clean(method, written)

    def prompt_text(self, problem: Problem) -> str:
        return self._text("prompt", problem)

    def message_text(self, problem: Problem) -> str:
        return self._text("message" if self.source.has("message") else "prompt", problem)

    def _text(self, method: str, problem: Problem) -> str:
        text = self.source.call(method, problem)
        if not isinstance(text, str) or not text.strip():
            raise InputError(f"{self.name}: {method}() returned {shown(text)}")
        return text

    def said(self, completion: str) -> str:
        return completion

    def grade(self, problem: Problem, completion: str) -> float:
        return self._grader.share("grade", problem, completion)

    def same(self, problem: Problem, one: str, other: str) -> bool:
        if not self.source.has("same"):
            return super().same(problem, one, other)
        return self._grader.share("same", problem, one, other) >= 1


own_task = cache(OwnTask)


def place(name: str) -> tuple[Path, str]:
    """Return the file and the class of `python:FILE:CLASS`. Raises ValueError."""
    file, _, class_name = name.removeprefix(PREFIX).rpartition(":")
    path = PurePath(normpath(file))
    if not (path.is_relative_to(OWN) and path.suffix == ".py" and class_name.isidentifier()):
        raise ValueError(f"{name!r}: expected {FORM}")
    return Path(path), class_name


def _text(fields: dict[str, Any], name: str, required: bool = False) -> str | None:
    """Return a text as it is: white space may count, as in an indented line of code."""
    value = fields.get(name)
    if value is None and not required:
        return None
    if not isinstance(value, str) or not value.strip():
        raise RowError(name, f"problem() made {shown(value)}", "a text")
    clean(name, value)
    return value
