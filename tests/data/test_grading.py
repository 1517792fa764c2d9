"""Both graders: published rows, and the time that hostile texts take."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from citer.data.importing import load_problems
from citer.data.tasks.grading import grade


@pytest.mark.parametrize("name", ["gsm8k", "commonsenseqa"])
def test_every_gold_is_right_and_every_other_answer_wrong(real_rows, name):
    task = {"gsm8k": "math", "commonsenseqa": "mc"}[name]
    bad = []
    rows = load_problems(real_rows / f"{name}.jsonl", task, "reference", bad.append)
    assert len(rows) + len(bad) == sum(1 for _ in (real_rows / f"{name}.jsonl").open())
    # One published rationale ends by denying the option that its row calls right.
    assert all("the answer is not " in error.found for error in bad)
    assert len(bad) <= 1
    for _, problem in rows:
        others = [c.label for c in problem.choices or ()] or [problem.answer + "1"]
        for other in others:
            right = grade(replace(problem, answer=other), problem.reference)
            assert right == (other == problem.answer), json.dumps(problem.reference)


# Each repeated to 300 kB: minutes and hours, with a pattern that reads the same text twice.
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


def test_the_time_of_grading_is_linear_in_the_text_also_off_the_main_thread():
    subprocess.run([sys.executable, "-c", GRADE_NASTY], check=True, timeout=60)
