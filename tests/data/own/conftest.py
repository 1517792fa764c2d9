"""A project's folder with a task of the user."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from citer.data.tasks.own import own_task

EXAMPLES = Path(__file__).parents[3] / "docs/examples"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty project as the working directory. Its tasks are imported anew."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data/own").mkdir(parents=True)
    own_task.cache_clear()
    return tmp_path


@pytest.fixture
def write_task() -> Callable[[str], str]:
    """Write a task whose `grade` has this body. The answer of a row is its question."""

    def write(grade: str, attributes: str = "time_limit = 5") -> str:
        body = grade.replace("\n", "\n        ")
        Path("data/own/t.py").write_text(
            f"""\
import os, signal, sys, time

class Own:
    {attributes}

    def problem(self, row):
        return {{"question": row["q"], "answer": row.get("q"), "reference": row.get("r")}}

    def prompt(self, problem):
        return problem.question + "?"

    def grade(self, problem, completion):
        {body}
"""
        )
        return "python:data/own/t.py:Own"

    return write


@pytest.fixture
def functions() -> str:
    """The worked example, copied to the project."""
    for name in ("functions.py", "functions.jsonl"):
        shutil.copy(EXAMPLES / name, "data/own")
    return "python:data/own/functions.py:Functions"
