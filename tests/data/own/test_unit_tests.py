"""The worked example of the documentation for published rows: MBPP and HumanEval."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from citer.data.importing import load_problems, parse_row
from citer.data.tasks.grading import WRONG, Grade, assess
from citer.errors import InputError
from tests.data.own.conftest import EXAMPLES

DOUBLE: dict[str, Any] = {
    "text": "Write a function to double a number.",
    "code": "def double(n):\r\n\treturn 2 * n",
    "task_id": 1,
    "test_setup_code": "",
    "test_list": ["assert double(2) == 4", "assert double(-1) == -2", "assert double(0) == 0"],
    "challenge_test_list": [],
}
LEAVES: dict[str, Any] = DOUBLE | {
    "text": "Write a function to count the leaves of a tree.",
    "task_id": 2,
    "code": "class Node:\n  def __init__(self, *below):\n    self.below = below\n"
    "def leaves(tree):\n  return sum(map(leaves, tree.below)) or 1",
    "test_setup_code": "one = Node()\r\ntwo = Node(Node(), Node())",
    "test_list": ["assert leaves(one) == 1", "assert (leaves(two)) == 2"],
}
POSITIVE: dict[str, Any] = {
    "task_id": "Own/0",
    "prompt": 'from typing import List\n\n\ndef positive(n: List[int]) -> List[int]:\n    """ '
    'Return those above 0.\n    >>> positive([1, -1])\n    [1]\n    """\n',
    "entry_point": "positive",
    "canonical_solution": "    return [each for each in n if each > 0]\n",
    "test": "\n\nMETADATA = {}\n\n\ndef check(candidate):\n    assert candidate([1, -1]) == [1]\n"
    "    assert candidate([]) == []\n",
}
UNDONE: dict[str, Any] = {
    "task_id": "Own/1",
    "prompt": 'def turned(text: str):\n    """Turn a text."""\n    return text[::-1]\n\n\n'
    'def undone(text: str):\n    """Undo `turned`."""\n',
    "entry_point": "undone",
    "canonical_solution": "    return text[::-1]\n",
    "test": "def check(candidate):\n    from random import choice\n    for _ in range(9):\n"
    "        text = ''.join(choice('abc') for _ in range(9))\n"
    "        assert candidate(turned(text)) == text\n",
}
CLOSE: dict[str, Any] = {
    "source_file": "Own.ipynb",
    "task_id": 3,
    "prompt": "Write a function to halve a number.",
    "code": "def half(n):\n  return math.fsum([n]) / 2",
    "test_imports": ["import math"],
    "test_list": ["assert math.isclose(half(3), 1.5, rel_tol=0.001)"],
}
FENCES = [
    *("```Python\n{}\n```", "```python3\n{}\n```", "```python \n{}\n```", "``` py\n{}\n```"),
    *("```python\n{}", "So: ```python\n{}\n```", "Use ```double```:\n```python\n{}\n```"),
]
ROWS = [DOUBLE, LEAVES, POSITIVE, UNDONE, CLOSE]


@pytest.fixture
def task() -> str:
    shutil.copy(EXAMPLES / "unit_tests.py", "data/own")
    return "python:data/own/unit_tests.py:UnitTests"


def stored(rows: list[dict[str, Any]]) -> Path:
    file = Path("data/own/rows.jsonl")
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_published_rows_are_problems_with_references_that_pass(task: str) -> None:
    problems = [p for _, p in load_problems(stored(ROWS), [task], "reference")]
    assert [assess(p, p.reference or "") for p in problems] == 5 * [Grade(True, 1)]
    assert problems[0].question.splitlines()[0] == DOUBLE["text"]
    assert problems[0].reference == "```python\ndef double(n):\n\treturn 2 * n\n```"
    assert POSITIVE["prompt"].strip() in problems[2].question


@pytest.mark.parametrize(
    "wrong",
    [
        DOUBLE | {"code": "def double(n): return n + 2"},
        LEAVES | {"test_setup_code": "one = Tree()"},
        POSITIVE | {"canonical_solution": "    return n\n"},
        UNDONE | {"canonical_solution": "    return\n"},
    ],
)
def test_a_reference_that_fails_its_own_tests_is_a_bad_row(task: str, wrong: dict) -> None:
    with pytest.raises(InputError, match=r"data/own/rows\.jsonl:2: reference: ends"):
        load_problems(stored([DOUBLE, wrong]), [task], "reference")


@pytest.mark.parametrize(
    ("row", "code", "share"),
    [
        (DOUBLE, "So:\n```python\ndef double(n):\n    return n + n\n```\nDone.", 1),
        (DOUBLE, "def double(n): return max(0, 2 * n)", 2 / 3),
        (DOUBLE, "```\ndouble = lambda n: n << 1\n```\n```text\n4\n```", 1),
        (
            DOUBLE,
            "```python\ndef double(n): return n * 2\n```\n```python\nprint(double(2))\n```",
            1,
        ),
        *((DOUBLE, form.format("def double(n):\n    return 2 * n"), 1) for form in FENCES),
        (DOUBLE, "```python\r\ndef double(n):\r\n\r\n    return 2 * n\r\n```\r\nDone.", 1),
        (DOUBLE, "1. So:\n   ```python\n   def double(n):\n\n     return 2 * n\n   ```\nDone.", 1),
        (DOUBLE, "```\ndouble = lambda n: n << 1\n```\n```text\n4\n```\nDone.", 1),
        (CLOSE, "```python\ndef half(n):\n    return 1 / (2 / n)\n```", 1),
        (CLOSE, "def half(n): return math.fabs(n)", 0),
        (POSITIVE, "```python\n    return [x for x in n if x > 0]\n```", 1),
        (POSITIVE, "def positive(n: List[int]): return list(filter(lambda x: x > 0, n))", 1),
        (POSITIVE, "    return sorted(x for x in n if x > 0)", 1),
        (POSITIVE, "def positive(n): return n", 0),
        (POSITIVE, "def negative(n): return []", 0),
        (UNDONE, "def undone(text): return ''.join(reversed(text))", 1),
        # The test's own `turned` is that of the prompt.
        (UNDONE, "def turned(text): return text\ndef undone(text): return text", 0),
    ],
)
def test_an_answer_is_graded_by_the_tests(task: str, row: dict, code: str, share: float) -> None:
    assert assess(parse_row(row, task, "answer"), code) == Grade(share == 1, share)


@pytest.mark.parametrize("row", ROWS)
def test_no_answer_forges_its_grade(task: str, row: dict) -> None:
    name = {1: "double", 2: "leaves", 3: "half", "Own/0": "positive", "Own/1": "undone"}[
        row["task_id"]
    ]
    forged = f"""
class Any(list):
    def __eq__(self, other): return True
def {name}(*_): return Any()
Node = Any
check = print = len = {name}
import builtins, random
builtins.AssertionError = random.choice = {name}"""
    problem = parse_row(row, task, "answer")
    assert assess(problem, forged) == assess(problem, "import os\nos._exit(0)") == WRONG
