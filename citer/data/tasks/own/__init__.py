"""Tasks of the user: a class in a Python file under `data/own`, named `python:FILE:CLASS`.

The class is created without arguments and has these methods:

    class Capitals:
        def problem(self, row):  # a raw row -> the fields of a problem, all texts
            return {"question": row["country"], "answer": row["capital"],
                    "reference": row["capital"]}

        def prompt(self, problem):  # -> the text before the answer
            return f"Capital of {problem.question}:\n"

        def grade(self, problem, completion):  # -> True, False or a share from 0 to 1
            return problem.answer in completion

`answer` is what `grade` compares with, `reference` a right completion. Rows that are only to be
answered have neither. Without the method `grade`, no row has an answer. These attributes and
methods may be added:

- `time_limit`: seconds for one answer, 5 by default;
- `memory_limit`: MiB of address space for one answer, 1024 by default;
- `pass_share`: the least share that counts as right, 1 by default;
- `message(problem)`: the user's turn under a chat template, by default the prompt;
- `same(problem, one, other)`: whether two completions give the same answer, by default whether they
  have the same words.

The file is imported by itself: it may import installed packages, but not its neighbours. Import,
`problem`, `prompt` and `message` run in the processes of citer and must give the same result
whenever they are called. `grade` and `same` run in a process of their own, shut in by
`citer.data.tasks.own.box`. They run code that a model wrote by `citer.program`. An AssertionError
means a wrong answer, or answers that are not the same.
"""

from functools import cache, cached_property
from importlib import import_module
from multiprocessing import Lock
from os.path import normpath
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, ClassVar

from citer.data.tasks.own.source import Source, called
from citer.data.tasks.task import Task
from citer.errors import InputError, shown

if TYPE_CHECKING:
    from citer.data.problems import Problem
    from citer.data.tasks.own.grader import Grader
    from citer.data.tasks.rows import Requires

OWN = PurePath("data/own")  # the folder of the user's files, which DVC tracks
PREFIX = "python:"
FORM = f"{PREFIX}{OWN}/FILE.py:CLASS"


class OwnTask(Task):
    """A task whose problems, prompts and grades come from a class of the user."""

    fields = ()
    reference_field = "reference"
    templates = ()
    example: ClassVar = {}

    def __init__(self, name: str) -> None:
        """Import the class. Raises InputError if it cannot be used."""
        self.name = name
        self.source = Source(*place(name))
        self.pass_share = self.source.limits.pass_share
        self._warning = _warning()
        self.digest = self.source.digest

    def problem(self, row: dict[str, Any], requires: "Requires", source: str) -> "Problem":
        return import_module(".rows", __name__).problem(self, row, requires, source)

    def prompt_text(self, problem: "Problem") -> str:
        return self._text("prompt", problem)

    def message_text(self, problem: "Problem") -> str:
        return self._text("message" if self.source.has("message") else "prompt", problem)

    def grade(self, problem: "Problem", completion: str) -> float:
        return self._grader.share("grade", problem, completion)

    def same(self, problem: "Problem", one: str, other: str) -> bool:
        if not self.source.has("same"):
            return super().same(problem, one, other)
        return self._grader.share("same", problem, one, other) >= 1

    def _text(self, method: str, problem: "Problem") -> str:
        text = called(self.source, method, problem)
        if not isinstance(text, str) or not text.strip():
            found = f"{method}() returned {shown(text)}"
            raise InputError(f"{self.name}: {found}; expected a text")
        return text

    @cached_property
    def _grader(self) -> "Grader":
        return import_module(".grader", __name__).Grader(self.source, self._warning)


_warning = cache(Lock)  # shared by all tasks and by all processes that this one forks
own_task = cache(OwnTask)


def place(name: str) -> tuple[Path, str]:
    """Return the file and the class of `python:FILE:CLASS`. Raises ValueError."""
    file, _, class_name = name.removeprefix(PREFIX).rpartition(":")
    path = PurePath(normpath(file))
    if not (path.is_relative_to(OWN) and path.suffix == ".py" and class_name.isidentifier()):
        raise ValueError(f"{name!r}: expected {FORM}")
    return Path(path), class_name
