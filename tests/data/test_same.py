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
    ("task", "one", "other"),
    [
        ("math", "So \\boxed{1/2}.", "It is \\boxed{0.5}"),
        ("math", "\\boxed{1,080}", "Then \\boxed{1080} dollars."),
        ("math", "\\boxed{\\frac{3}{4}}", "\\boxed{75\\%}"),
        ("math", "no box", "no  box"),
        ("number", "4 + 9 = 13.", "The answer is \\boxed{13}"),
        ("number", "It costs 3 million.", "3,000,000"),
        ("mc", "The answer is (B).", "B"),
        ("mc", "It is the Sun.", "I choose (B)"),
        ("mc", "I do not know.", "I do not know."),
        ("exact", "Right.", "right"),
        ("exact", " a  b", "A b."),
        ("contains", "It was Rousseau.", "it was rousseau"),
        ("json", '{"a": 1, "b": [2]}', 'So:\n```json\n{"b": [2.0], "a": 1}\n```'),
        ("json", "nothing", "nothing"),
        ("open", "Air scatters\nblue.", "Air scatters blue."),
    ],
)
def test_these_are_the_same(task: str, one: str, other: str) -> None:
    assert same(task, one, other)
    assert same(task, other, one)


@pytest.mark.parametrize(
    ("task", "one", "other"),
    [
        ("math", "\\boxed{12}", "\\boxed{21}"),
        ("math", "no box, 12", "none, 12"),  # nothing is stated
        ("math", "\\boxed{}", "\\boxed{ }!"),
        ("math", "\\boxed{12}", "It is 12."),
        ("number", "12 apples", "13 apples"),
        ("number", "none", "nothing"),
        ("mc", "The answer is (B).", "The answer is (C)."),
        ("mc", "A or B", "B or A."),  # neither names a single option
        ("mc", "I do not know.", "No idea."),
        ("exact", "right", "left"),
        ("contains", "It was Rousseau.", "Rousseau wrote it."),
        ("json", '{"a": 1}', '{"a": true}'),
        ("json", "{", "["),
        ("json", '{"a": 1}', "a: 1"),
        ("json", '{"a": "Bob"}', '{"a": "bob"}'),
        ("open", "Air scatters blue.", "Blue scatters air."),
    ],
)
def test_these_are_not(task: str, one: str, other: str) -> None:
    assert not same(task, one, other)
    assert not same(task, other, one)


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
