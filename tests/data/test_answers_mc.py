"""The grader of multiple-choice answers; tests/data/test_verdicts_mc.py has more verdicts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citer.data.problems import Choice, Problem
from citer.data.tasks.grading import grade


def mc(answer, *texts, labels="ABCDE"):
    choices = tuple(Choice(label, text) for label, text in zip(labels, texts, strict=False))
    return Problem("c", "mc", "What?", choices, None, answer, "", "")


HELP = mc("C", "getting tired", "better grade", "sharing information", "interesting", "teaching")


@pytest.mark.parametrize(
    ("problem", "completion", "right"),
    [
        (mc("2", "ice", "steam", "snow", "rain", labels="1234"), "1. It is hot.\n2", True),
        (mc("D", "a good swimmer", "solid", "gilded", "less dense"), "It is solid.", False),
        (mc("B", "dense", "less dense than water", "water"), "less dense than water", True),
        (mc("A", "dense", "less dense than water", "water"), "less dense than water", False),
        (mc("A", "a field", "lake"), "The answer is a field.", True),
        (mc("B", "a field", "lake"), "The answer is a lake (b).", True),
        (mc("B", "friend's house", "st. louis"), "The answer is St. Louis (b).", True),
        (mc("A", "friend's house", "st. louis"), "the answer is friend\u2019s house", True),
        (mc("A", "same", "same"), "The answer is same.", False),
        (mc("A", "same", "same"), "The answer is same (a).", True),
        (mc("A", "b", "a"), "The answer is A.", True),
        (HELP, "Share it with teaching. The answer is sharing information (c).", True),
    ],
)
def test_options_whose_labels_and_texts_are_easily_confused(problem, completion, right):
    assert grade(problem, completion) is right


texts = st.lists(
    st.text("abe .,'-4$\\\n", min_size=1, max_size=9).map(str.strip).filter(len),
    min_size=2,
    max_size=5,
    unique_by=lambda text: " ".join(text.split()),
)


@given(
    texts, st.integers(0, 4), st.sampled_from(["the answer is {} ({}).", "So: {} ({})", "({1})"])
)
def test_label_and_text_name_their_option_whatever_its_text(texts, index, form):
    label = "ABCDE"[index % len(texts)]
    completion = form.format(texts[index % len(texts)], label.lower())
    assert [c for c in "ABCDE"[: len(texts)] if grade(mc(c, *texts), completion)] == [label]


@pytest.mark.parametrize("written", ["4\n4 (a)", "4 4 (a)", "4\n 4", "4 4"])
def test_an_option_of_two_lines_may_end_with_another_options_text(written):
    assert grade(mc("A", "4\n4", "4"), f"the answer is {written}.")
    assert not grade(mc("B", "4\n4", "4"), f"the answer is {written}.")
