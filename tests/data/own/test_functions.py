"""The worked example of the documentation: unit tests of Python functions."""

from pathlib import Path
from typing import Any

import pytest

from citer.data.importing import load_problems, parse_row
from citer.data.tasks import own_grader as grader
from citer.data.tasks.grading import WRONG, Grade, assess

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
        ("```Python3 \ndef double(n):\n    return n + n\n```\nIt prints\n```\n4\n```", 1),
        ("1. So:\r\n   ```python\r\n   def double(n):\r\n     return n + n\r\n   ```", 1),
        ("```python\ndef double(n):\n    return n + n", 1),
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
    "code",
    [
        "import os\nos._exit(0)",
        "import sys\nsys.exit(0)",
        "def double(n): quit()",
        "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
        "import os\nos.execv('/bin/sh', ['sh', '-c', 'sleep 0.2'])",
    ],
)
def test_an_answer_that_ends_its_process_is_wrong(functions: str, code: str) -> None:
    assert assess(parse_row(ROW, functions, "reference"), code) == WRONG


FORGED = {
    "equal to everything": """
class Any(int):
    def __eq__(self, other): return True
    def __repr__(self): return "Any()"
def double(n): return Any()""",
    "a text that would be run": """
class Any:
    def __repr__(self): return "__import__('os')._exit(0)"
def double(n): return Any()""",
    "a change of Python": """
import builtins, sys
builtins.AssertionError = builtins.repr = builtins.ascii = lambda *_: "True"
def double(n): raise SystemExit(0)""",
    "a walk through the frames": """
import gc, sys
def double(n):
    frame = sys._getframe()
    while frame:
        for found in (*frame.f_locals.values(), *frame.f_globals.values()):
            if "assert" in str(found) or hasattr(found, "send_bytes"):
                return 2 * n
        frame = frame.f_back
    if any("assert double" in str(found) for found in gc.get_objects() if type(found) is str):
        return 2 * n""",
    "all descriptors": """
import os
for number in range(99):
    try:
        os.write(number, b'{"share": 1.0}\\nTrue\\n1.0\\n')
    except OSError:
        pass
os._exit(0)""",
    "closed descriptors": "import os, time\nos.closerange(0, 99)\ndef double(n): return 2 * n",
    "a long reply": "def double(n): return 'x' * 2**25",
    "a deep reply": """
import os
for number in range(3, 9):
    try:
        os.write(number, b"[" * 5000 + b"\\n" + b"-" * 100000 + b"\\n")
    except OSError:
        pass""",
    "other processes": """
import ctypes, os
def looked(place):
    for name in ("mem", "environ", "maps"):
        try:
            with open(f"/proc/{place}/{name}", "rb") as file:
                if file.read(1) or name == "mem":
                    return True
        except OSError:
            pass
    try:
        if os.listdir(f"/proc/{place}/fd"):
            os.readlink(f"/proc/{place}/fd/0")
            return True
    except OSError:
        pass
    return ctypes.CDLL(None).ptrace(16, place, 0, 0) == 0
parent = os.getppid()
with open(f"/proc/{parent}/stat") as file:
    grandparent = int(file.read().rpartition(")")[2].split()[1])
def double(n):
    if any(looked(place) for place in (parent, grandparent) if place):
        return 2 * n""",
    "a test's own names": """
def double(n): return set
def set(*_): return 1
tests = problem = True""",
}


@pytest.mark.parametrize("refused", [False, True])
def test_no_answer_forges_its_grade(
    functions: str, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if refused:
        monkeypatch.setattr(grader, "CHILD", "tests.data.own.refused")
    problem = parse_row(ROW, functions, "reference")
    assert {how: assess(problem, code) for how, code in FORGED.items()} == dict.fromkeys(
        FORGED, WRONG
    )
    assert assess(problem, ROW["code"]) == Grade(True, 1)


def test_an_answer_that_loops_is_wrong(functions: str) -> None:
    file = Path("data/own/functions.py")
    source = file.read_text()
    assert "time_limit = 5" in source
    file.write_text(source.replace("time_limit = 5", "time_limit = 2"))
    problem = parse_row(ROW, functions, "reference")
    looping = assess(problem, "while True: pass")
    assert looping == Grade(False, 0, "timeout after 2 s")
    assert assess(problem, ROW["code"]) == Grade(True, 1)


@pytest.mark.parametrize(
    ("code", "test"),
    [
        ("from collections import Counter as f", "assert f('aab') == {'a': 2, 'b': 1}"),
        ("def f(x): return x", "assert f('line\\nline ü') == 'line\\nline ü'"),
        ("def f(x): return {x, 1}", "assert sorted(f(x=2)) == [1, 2]"),
        ("def f(x): return x % 2 == 0", "assert all(f(n) for n in (2, 4)) and not f(3)"),
        ("def f(x): return set()", "assert f(b'x') == set()"),
        ("import sys\ndef f(): return sys.stdin.read()", "assert f() == ''"),
        ("class f(str): pass", "assert f('x') == 'x'"),
    ],
)
def test_results_are_plain_data(functions: str, code: str, test: str) -> None:
    row = ROW | {"code": code, "tests": [test]}
    assert assess(parse_row(row, functions, "question"), code) == Grade(True, 1)
