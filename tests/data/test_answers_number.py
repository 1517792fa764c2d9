"""The task `number`: the last box counts, or else the last number."""

from dataclasses import replace

import pytest

from citer.data.importing import parse_row
from citer.data.tasks.grading import grade
from citer.data.tasks.math import last_number
from citer.data.tasks.rows import RowError
from tests.tiny import MATH

NUMBER = replace(MATH, task="number")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("4 + 9 = 13. The answer is 13.", "13"),
        ("It costs $1,080.50.", "1,080.50"),
        ("So -5", "-5"),
        ("x = \u22125.", "-5"),
        ("7-5", "5"),
        ("from 3 to 1,2,3", "3"),
        ("H2O", None),
        ("about 3 million people", "3 million"),
        ("that is 50%.", "50%"),
        ("it is 2 1/2 cups", "2 1/2"),
        ("3/4", "3/4"),
        (r"\frac{3}{4}", "3/4"),
        (r"1{,}080", "1,080"),
        ("1.5e3", "1.5e3"),
        ("12cm", "12"),
        ("#### 72", "72"),
        ("is .5", ".5"),
        ("-$5", "-$5"),
        ("5! = 120", "120"),
        ("so 13 != 14, and **13**!", "13"),
        ("The total is 12 000.", "12000"),
        ("12 345 000 500 in all", "12345000500"),
        ("-$1 050.50", "-$1050.50"),
        ("bottles of 3 200 ml", "200"),
        ("12 0000", "0000"),
        ("0.5 000", "000"),
        (r"about 3 \times 10^{8} of them", "3e8"),
        ("so 2 hundred thousand", "2 hundred thousand"),
        ("", None),
    ],
)
def test_the_last_number_of_a_text_is_read(text: str, number: str | None) -> None:
    assert last_number(text) == number


@pytest.mark.parametrize(
    ("completion", "right"),
    [
        ("36 - 5 = 31. The answer is 31.", True),
        (r"\boxed{31} is the answer, found in 2 steps", True),
        (r"It is \boxed{31", True),
        ("62/2", True),
        *((each, False) for each in ("", "31 or 32", r"31, so \boxed{32}", "131", "0.31", "x31")),
    ],
)
def test_the_box_or_else_the_last_number_is_graded(completion: str, right: bool) -> None:
    assert grade(NUMBER, completion) is right


def test_a_row_of_numbers_needs_no_box() -> None:
    row = {"problem": "4 + 9?", "solution": "4 + 9 = 13. The answer is 13."}
    problem = parse_row(row, "number", "reference")
    assert (problem.task, problem.answer) == ("number", "13")
    with pytest.raises(RowError, match="solution: no complete"):
        parse_row(row, "math", "reference")
    with pytest.raises(RowError, match="a text that the grader reads as '12'"):
        parse_row(row | {"answer": "12"}, "number", "reference")


def test_a_problem_of_two_tasks_has_two_ids() -> None:
    row = {"problem": "4 + 9?", "answer": "13"}
    ids = {parse_row(row, task, "answer").problem_id for task in ("math", "number")}
    assert len(ids) == 2
