"""Whether two completions give the same answer, by task."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citer.data.problems import Choice
from citer.data.tasks import TASKS, find_task
from citer.data.tasks.grading import grade
from tests.tiny import MATH, MC

OPTIONS = (Choice("A", "Mars"), Choice("B", "the Sun"), Choice("C", "the Moon"))
QUESTION = replace(MC, choices=OPTIONS, answer=None)


def same(task: str, one: str, other: str) -> bool:
    problem = replace(QUESTION if task == "mc" else MATH, task=task, answer=None)
    return find_task(task).same(problem, one, other)


@pytest.mark.parametrize(
    ("task", "one", "other", "expected"),
    [
        ("math", "So \\boxed{1/2}.", "It is \\boxed{0.5}", True),
        ("math", "\\boxed{1,080}", "Then \\boxed{1080} dollars.", True),
        ("math", "\\boxed{\\frac{3}{4}}", "\\boxed{75\\%}", True),
        ("math", "no box", "no  box", True),
        ("number", "4 + 9 = 13.", "The answer is \\boxed{13}", True),
        ("number", "It costs 3 million.", "3,000,000", True),
        ("mc", "The answer is (B).", "B", True),
        ("mc", "It is the Sun.", "I choose (B)", True),
        ("mc", "I do not know.", "I do not know.", True),
        ("exact", "Right.", "right", True),
        ("exact", " a  b", "A b.", True),
        ("contains", "It was Rousseau.", "it was rousseau", True),
        ("json", '{"a": 1, "b": [2]}', 'So:\n```json\n{"b": [2.0], "a": 1}\n```', True),
        ("json", "nothing", "nothing", True),
        ("open", "Air scatters\nblue.", "Air scatters blue.", True),
        ("math", "\\boxed{12}", "\\boxed{21}", False),
        ("math", "no box, 12", "none, 12", False),  # nothing is stated
        ("math", "\\boxed{}", "\\boxed{ }!", False),
        ("math", "\\boxed{12}", "It is 12.", False),
        ("number", "12 apples", "13 apples", False),
        ("number", "none", "nothing", False),
        ("mc", "The answer is (B).", "The answer is (C).", False),
        ("mc", "A or B", "B or A.", False),  # neither names a single option
        ("mc", "I do not know.", "No idea.", False),
        ("exact", "right", "left", False),
        ("contains", "It was Rousseau.", "Rousseau wrote it.", False),
        ("json", '{"a": 1}', '{"a": true}', False),
        ("json", "{", "[", False),
        ("json", '{"a": 1}', "a: 1", False),
        ("json", '{"a": "Bob"}', '{"a": "bob"}', False),
        ("open", "Air scatters blue.", "Blue scatters air.", False),
    ],
)
def test_two_answers_are_the_same_or_not_in_both_orders(
    task: str, one: str, other: str, expected: bool
) -> None:
    assert same(task, one, other) is expected
    assert same(task, other, one) is expected


PIECES = ("\\boxed{", "}", "1", "2", ".5", "50%", "(A)", "B", "not ", " or ", "the Sun", "\n", ", ")
TEXTS = st.lists(st.sampled_from(PIECES), max_size=6).map("".join)


@pytest.mark.parametrize("task", TASKS)
@given(one=TEXTS, other=TEXTS)
def test_the_order_does_not_count_and_a_text_is_the_same_as_itself(
    task: str, one: str, other: str
) -> None:
    assert same(task, one, one)
    assert same(task, one, other) == same(task, other, one)


@given(one=TEXTS, other=TEXTS)
def test_the_same_option_has_the_same_grade(one: str, other: str) -> None:
    if same("mc", one, other):
        for label in "ABC":
            problem = replace(QUESTION, answer=label)
            assert grade(problem, one) == grade(problem, other)
