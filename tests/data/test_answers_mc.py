"""The grader of multiple-choice answers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citer.data.problems import Choice, Problem
from citer.data.tasks.grading import grade


def mc(answer, *texts, labels="ABCDE"):
    choices = tuple(Choice(label, text) for label, text in zip(labels, texts, strict=False))
    return Problem("c", "mc", "What?", choices, None, answer, "", "")


SILK = mc("C", "nightgown", "mulberry tree", "garments", "china", "bushes")

HELP = mc("C", "getting tired", "better grade", "sharing information", "interesting", "teaching")


@pytest.mark.parametrize(
    "completion",
    [
        "(C)",
        "C",
        "c.",
        "C) garments",
        "C. garments",
        "(c) Garments",
        "**C**",
        "\\boxed{C}",
        "answer: C",
        "Answer: (C)",
        "The answer is C",
        "the answer is C.",
        'The answer is "C".',
        "The answer is C because silk is soft.",
        "The answer is: C",
        "the answer is garments (c).",
        "Therefore, the answer could be either garments (c)",
        "Therefore, the answer is one of (c),",
        "The answer must be made of silk. One such thing is garments (c).",
        "Option C is correct.",
        "The correct option is (C).",
        "garments",
        "GARMENTS.",
        "The answer is garments.",
        "Bushes (e) are not. The answer is (c).",
        "Of bushes (e), china (d) and garments (c), the answer is garments (c).",
        "The answer is bushes (e). No: the answer is garments (c).",
        "The answer is (c). It is not the nightgown (a).",
        "It may be a nightgown.\nThe answer is garments.",
        "Made of silk, so a garments (c)",
    ],
)
def test_these_completions_choose_garments(completion):
    assert grade(SILK, completion)


@pytest.mark.parametrize(
    "completion",
    [
        "",
        "The answer is",
        "(A)",
        "A",
        "Z",
        "(F)",
        "The answer is (a).",
        "The answer is nightgown (a).",
        "The answer is (a) or (c).",
        "The answer is garments (c) or bushes (e).",
        "The answer is bushes (c).",
        "The answer is (c) bushes",
        "The answer is garments or bushes.",
        "The answer is garments (c). Wait, the answer is bushes (e).",
        "The answer is undergarments.",
        "Silk makes garments. The answer is bushes.",
        "I do not know, maybe silk.",
        "Bacchus",
    ],
)
def test_these_completions_do_not_choose_garments(completion):
    assert not grade(SILK, completion)


@pytest.mark.parametrize(
    ("problem", "completion", "right"),
    [
        (mc("2", "ice", "steam", "snow", "rain", labels="1234"), "The answer is 2.", True),
        (mc("2", "ice", "steam", "snow", "rain", labels="1234"), "the answer is steam (2)", True),
        (mc("2", "ice", "steam", "snow", "rain", labels="1234"), "1. It is hot.\n2", True),
        (mc("2", "ice", "steam", "snow", "rain", labels="1234"), "(3)", False),
        (mc("D", "a good swimmer", "solid", "gilded", "less dense"), "It is solid.", False),
        (mc("B", "dense", "less dense than water", "water"), "less dense than water", True),
        (mc("A", "dense", "less dense than water", "water"), "less dense than water", False),
        (mc("A", "a field", "lake"), "The answer is a field.", True),
        (mc("B", "a field", "lake"), "The answer is a lake (b).", True),
        (mc("B", "friend's house", "st. louis"), "The answer is St. Louis (b).", True),
        (mc("A", "friend's house", "st. louis"), "the answer is friend\u2019s house", True),
        (mc("A", "same", "same"), "The answer is same.", False),
        (mc("A", "same", "same"), "The answer is same (a).", True),
        (mc("B", "O", "A", "B"), "The answer is B.", True),
        (mc("C", "O", "A", "B"), "The answer is B.", False),
        (mc("A", "b", "a"), "The answer is A.", True),
        (mc("C", "c++", "(x)", "a|b"), "The answer is a|b (c).", True),
        (mc("A", "c++", "(x)", "a|b"), "The answer is C++.", True),
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
