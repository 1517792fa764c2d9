"""Both graders: published rows, and the time that hostile texts take."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from citer.data.importing import load_problems
from citer.data.problems import Problem
from citer.data.tasks.grading import extracted, grade, same
from tests.tiny import MATH, MC


@pytest.mark.parametrize("name", ["gsm8k", "commonsenseqa"])
def test_every_reference_is_right_only_for_its_own_answer(real_rows, name):
    task = {"gsm8k": "math", "commonsenseqa": "mc"}[name]
    bad = []
    rows = load_problems(real_rows / f"{name}.jsonl", [task], "reference", bad.append)
    assert len(rows) + len(bad) == sum(1 for _ in (real_rows / f"{name}.jsonl").open())
    # One published rationale contradicts the right option of its row in its last sentence.
    assert all("the answer is not " in error.found for error in bad)
    assert len(bad) <= 1
    for _, problem in rows:
        others = [c.label for c in problem.choices or ()] or [problem.answer + "1"]
        for other in others:
            right = grade(replace(problem, answer=other), problem.reference)
            assert right == (other == problem.answer), json.dumps(problem.reference)


CLOSER = "<think>Maybe the answer is A. Hmm, no, C fits better.</think>\n\n**C**"


@pytest.mark.parametrize(
    ("problem", "completion", "right"),
    [
        (replace(MC, answer="C"), CLOSER, True),
        (replace(MC, answer="A"), CLOSER, False),
        (
            replace(MATH, task="contains", answer="Rome"),
            "<think>Paris or Rome?</think>Paris",
            False,
        ),
        (replace(MATH, task="contains", answer="Paris"), "<think>Rome?</think>Paris", True),
        (replace(MATH, task="exact", answer="Paris"), "Rome?</think>\n\nParis.", True),
        (replace(MATH, task="json", answer="[1]"), "<think>{</think>[1]", True),
        (MATH, "<think>\\boxed{30}</think> No, \\boxed{31}", True),
        (MATH, "<think>\\boxed{31}</think> That is it.", False),
        (replace(MATH, answer=None, written_by="llm"), "</think>\\boxed{31}", True),
    ],
)
def test_only_what_follows_the_thinking_of_a_model_is_graded(
    problem: Problem, completion: str, right: bool
) -> None:
    assert grade(problem, completion) is right


def test_thinking_is_neither_compared_nor_shown() -> None:
    assert extracted(MATH, "<think>\\boxed{30}</think>") == ""
    assert extracted(MC, CLOSER) == "C"
    assert same(replace(MATH, task="open"), "<think>a</think>Yes.", "<think>b</think>\nyes")
    assert not same(MATH, "<think>\\boxed{3}</think>?", "<think>\\boxed{3}</think>!")


# Each is repeated up to 300 kB. A pattern that reads text twice would take minutes or hours.
NASTY = {
    "mc": ["option ", "answer is ", "a, ", "not (a) ", "(a) and ", " \n"],
    "math": ["\\boxed{", "\\boxed "],
    "box": ["(", "{", "1,", " "],
}

GRADE_NASTY = f"""
from concurrent.futures import ThreadPoolExecutor
from citer.data.tasks.grading import grade
from citer.data.problems import Choice, Problem

choices = (Choice("A", "a a a b"), Choice("B", "9"), Choice("C", "china ("))
math = Problem("m", "math", "?", None, None, "1234", "", "")
problems = dict(mc=Problem("c", "mc", "?", choices, None, "C", "", ""), math=math, box=math)
with ThreadPoolExecutor(1) as pool:
    for kind, units in {NASTY!r}.items():
        for unit in units:
            text = unit * (300_000 // len(unit)) + "x"
            text = "\\\\boxed{{" + text + "}}" if kind == "box" else text
            assert not pool.submit(grade, problems[kind], text).result(), unit
"""


def test_grading_takes_linear_time_on_any_thread():
    subprocess.run([sys.executable, "-c", GRADE_NASTY], check=True, timeout=60)
