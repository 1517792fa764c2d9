"""The worked example of the documentation: unit tests of Python functions."""

from pathlib import Path
from typing import Any

import pytest

from citer.data.importing import load_problems, parse_row
from citer.data.tasks.grading import Grade, assess

ROW: dict[str, Any] = {
    "text": "double(n) returns twice n.",
    "code": "def double(n):\n    return 2 * n",
    "tests": ["assert double(2) == 4", "assert double(0) == 0"],
}


def test_every_row_of_the_example_is_a_problem(functions: str) -> None:
    rows = load_problems(Path("data/own/functions.jsonl"), [functions], "reference")
    assert len(rows) == 6


@pytest.mark.parametrize(
    ("code", "share"),
    [
        ("def double(n):\n    return n + n", 1),
        ("Here:\n```python\ndef double(n):\n    return n + n\n```\nDone.", 1),
        ("print('hello')\ndef double(n):\n    print(n)\n    return n + n", 1),
        ("def double(n):\n    return 0", 0.5),
        ("def double(n):\n    return n + 1", 0),
        ("def double(n)", 0),
        ("", 0),
    ],
)
def test_an_answer_gets_the_share_of_the_tests_that_it_passes(
    functions: str, code: str, share: float
) -> None:
    problem = parse_row(ROW, functions, "reference")
    assert assess(problem, code) == Grade(share == 1, share)


@pytest.mark.parametrize(
    ("code", "failure"),
    [
        ("import os\nos._exit(0)", "its process ended with exit status 0 before it returned"),
        ("import sys\nsys.exit(0)", "SystemExit: 0"),
        ("def double(n): quit()", "SystemExit"),
        (
            "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
            "its process ended by signal 9",
        ),
        (
            "import os\nos.execv('/bin/sh', ['sh', '-c', 'sleep 0.2'])",
            "its process ended with exit status 0",
        ),
    ],
)
def test_an_answer_that_ends_its_process_is_wrong(functions: str, code: str, failure: str) -> None:
    correct, share, why = assess(parse_row(ROW, functions, "reference"), code)
    assert (correct, share) == (False, 0)
    assert why
    assert why.startswith(failure)


def test_an_answer_that_loops_is_wrong(functions: str) -> None:
    file = Path("data/own/functions.py")
    source = file.read_text()
    assert "time_limit = 5" in source
    file.write_text(source.replace("time_limit = 5", "time_limit = 2"))
    problem = parse_row(ROW, functions, "reference")
    looping = assess(problem, "while True: pass")
    assert looping == Grade(False, 0, "timeout after 2 s")
    assert assess(problem, ROW["code"]) == Grade(True, 1)
