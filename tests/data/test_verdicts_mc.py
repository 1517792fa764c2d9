"""Verdicts on multiple-choice answers: options, the right option, text, verdict."""

import pytest

from citer.data.problems import Choice, Problem
from citer.data.tasks.grading import grade

RIGHT, WRONG = True, False
SILK = ("nightgown", "mulberry tree", "garments", "china", "bushes")
PLANET = ("Mars", "the Sun", "the Moon")
CITY = ("Paris", "Rome", "London", "none of the above")
COUNT = ("four", "five", "six")
WATER = ("ice", "steam", "snow", "rain")
TEA = ("lemon", "lemon tea", "iced lemon tea")
VITAMIN = ("D", "C", "B", "both B and C")
CAFE = ("café", "thé", "don't know")
SUM = ("2", "1", "4", "3")
CODE = ("c++", "(x)", "a|b")
LISTED = "\n".join(
    f"{label}. {text}: no, or so." for label, text in zip("ABCDE", SILK, strict=True)
)

VERDICTS = {
    "label": [
        (SILK, "A", "A", RIGHT),
        (SILK, "A", "(A)", RIGHT),
        (SILK, "A", "\uff08A\uff09", RIGHT),
        (SILK, "A", "a", RIGHT),
        (SILK, "A", "answer:A", RIGHT),
        (SILK, "A", "Answer A", RIGHT),
        (SILK, "A", "It is A", RIGHT),
        (SILK, "A", "It must be A!", RIGHT),
        (SILK, "A", "I choose A", RIGHT),
        (SILK, "A", "Therefore, A.", RIGHT),
        (SILK, "A", "The answer must be A", RIGHT),
        (SILK, "A", "The correct choice is A", RIGHT),
        (SILK, "A", "A is correct.", RIGHT),
        (SILK, "A", "\\boxed{A}", RIGHT),
        (SILK, "A", "\\boxed{\\text{A}}", RIGHT),
        (SILK, "A", "\\boxed{A. nightgown}", RIGHT),
        (SILK, "A", "", WRONG),
        (SILK, "A", "The answer is", WRONG),
        (SILK, "A", "B", WRONG),
        (SILK, "A", "1", WRONG),
        (SILK, "A", "(F)", WRONG),
        (SILK, "A", "A good one", WRONG),
        (SILK, "A", "It is a good one.", WRONG),
        (SILK, "A", "I choose a good one.", WRONG),
        (SILK, "A", "A B C D E", WRONG),
        (SILK, "A", "ABC", WRONG),
        (SILK, "A", "At 5 a.m.", WRONG),
        (SILK, "E", "E.g., silk", WRONG),
    ],
    "label and text": [
        (SILK, "A", "The answer should be (A) nightgown", RIGHT),
        (SILK, "A", "nightgown (A)", RIGHT),
        (SILK, "A", "A. bushes", WRONG),
        (SILK, "A", "A) bushes", WRONG),
        (SILK, "A", "bushes (A)", WRONG),
        (SILK, "C", "The answer is bushes (c).", WRONG),
        (SILK, "A", "**(A)** bushes", WRONG),
    ],
    "text": [
        (SILK, "A", "A nightgown", RIGHT),
        (SILK, "B", "The Mulberry  Tree", RIGHT),
        (SILK, "A", "nightgowns", WRONG),
        (SILK, "C", "The answer is undergarments.", WRONG),
        (SILK, "A", "Anything.", WRONG),
    ],
    "decoration": [
        (SILK, "A", 'The answer is "A".', RIGHT),
        (SILK, "A", "The answer is `A`", RIGHT),
        (SILK, "A", "The answer is \u201cA\u201d.", RIGHT),
        (SILK, "A", "**Answer:** A", RIGHT),
        (SILK, "A", "**Answer**: A", RIGHT),
        (SILK, "A", "The answer is **A**.", RIGHT),
    ],
    "negation": [
        (SILK, "A", "not (B), it is (A)", RIGHT),
        (SILK, "A", "The answer is A, not B", RIGHT),
        (SILK, "A", "Neither (B) nor (C): it is (A)", RIGHT),
        (SILK, "A", "B is wrong, so it is A.", RIGHT),
        (SILK, "A", "Option A is right; option B is wrong.", RIGHT),
        (SILK, "A", "not bushes but nightgown", RIGHT),
        (PLANET, "A", "It is Mars, not the Sun.", RIGHT),
        (PLANET, "A", "The answer isn't the Sun. It is Mars.", RIGHT),
        (PLANET, "A", "One should not travel without water to Mars (a).", RIGHT),
        (SILK, "A", "not (A)", WRONG),
        (SILK, "A", "The answer is not A", WRONG),
        (SILK, "A", "The answer isn't (A)", WRONG),
        (SILK, "A", "The answer cannot be (A)", WRONG),
        (SILK, "A", "A is wrong", WRONG),
        (SILK, "A", "(A) is not right", WRONG),
        (SILK, "A", "(A) is incorrect, (B) is right", WRONG),
        (SILK, "A", "Neither (A) nor (B)", WRONG),
        (SILK, "A", "I do not choose (A)", WRONG),
        (PLANET, "A", "Not Mars.", WRONG),
        (PLANET, "A", "It isn't Mars", WRONG),
    ],
    "ruled out": [
        (SILK, "A", "We can exclude (A) and (B).", WRONG),
        (SILK, "A", "(A) is ruled out.", WRONG),
        (SILK, "A", "We eliminate (B), (C) and (D). The answer is (A).", RIGHT),
        (SILK, "A", "The answer is A. I ruled out B, C and D.", RIGHT),
        (SILK, "A", "(B) is out. (A)", RIGHT),
        (SILK, "A", "Everything but A", WRONG),
        (SILK, "A", "None but (A)", RIGHT),
        (SILK, "B", "(A) does not fit. (B) does.", RIGHT),
        (SILK, "A", "A fits best. B does not fit.", WRONG),
    ],
    "doubt": [
        (SILK, "A", "The answer is not necessarily (A)", WRONG),
    ],
    "other than": [
        (SILK, "A", "Except (A), (B) and (C) are right.", WRONG),
        (CITY, "A", "Unlike London, Paris", RIGHT),
        (CITY, "A", "Unlike London, it is Paris.", RIGHT),
        (CITY, "A", "Unlike London, Rome and Paris", WRONG),
    ],
    "questions": [
        (SILK, "B", "**Is it (A)?** I choose (B).", RIGHT),
        (SILK, "A", "The answer is A. Right?", RIGHT),
        (SILK, "A", "Is the answer A?", WRONG),
        (SILK, "A", "Is the answer A? No.", WRONG),
        (SILK, "A", "(A)?", WRONG),
        (SILK, "A", "Could it be (A)? Perhaps.", WRONG),
        (SILK, "A", "The answer is A, right?", WRONG),
        (CITY, "B", "Paris? No, Rome.", RIGHT),
        (CITY, "A", "Paris? I doubt it.", WRONG),
        (CITY, "A", "Paris?", WRONG),
    ],
    "likely": [
        (SILK, "A", "The answer is probably A", RIGHT),
        (SILK, "A", "The answer is most likely A.", RIGHT),
        (SILK, "A", "The answer is clearly A because silk is soft.", RIGHT),
        (SILK, "A", "The answer is probably not A", WRONG),
        (SILK, "A", "The answer is not likely (A)", WRONG),
    ],
    "tags and headings": [
        (SILK, "A", "<answer>A</answer>", RIGHT),
        (SILK, "A", "I choose B.\n<answer>A</answer>", RIGHT),
        (SILK, "A", "<think>It is B?</think><answer>(A)</answer>", RIGHT),
        (SILK, "A", "<answer>\nA. nightgown\n</answer>", RIGHT),
        (SILK, "A", "### A", RIGHT),
        (SILK, "A", "### Answer\nA", RIGHT),
        (SILK, "A", "### (A) nightgown", RIGHT),
        (SILK, "A", "<answer>not A</answer>", WRONG),
    ],
    "other languages": [
        (SILK, "A", "\u7b54\u6848\u4e0d\u662fA", WRONG),
    ],
    "reasons": [
        (SILK, "A", "The answer is A because silk is soft.", RIGHT),
        (SILK, "A", "The answer is A since (B) is wrong", RIGHT),
        (SILK, "A", "The answer is A, because (C) is too broad.", RIGHT),
        (SILK, "A", "I would choose A, since silk is soft.", RIGHT),
        (SILK, "B", "The answer is A since (B) is wrong", WRONG),
    ],
    "two answers": [
        (SILK, "A", "A, B", WRONG),
        (SILK, "A", "A and B", WRONG),
        (SILK, "A", "A/B", WRONG),
        (SILK, "A", "A & B", WRONG),
        (SILK, "A", "(A) (B)", WRONG),
        (SILK, "A", "The answer is A or B", WRONG),
        (SILK, "A", "It's either A or C", WRONG),
        (SILK, "A", "nightgown, bushes", WRONG),
    ],
    "second thoughts": [
        (SILK, "A", "Is it (B)? No, (A).", RIGHT),
        (SILK, "A", "(B) or (A)? I choose (A).", RIGHT),
        (SILK, "A", "Not (A)? Yes it is: the answer is (A).", RIGHT),
        (SILK, "B", "The answer is (A). No, it is (B).", RIGHT),
        (SILK, "A", "The answer is (A). No, it is (B).", WRONG),
        (SILK, "A", "The answer is (A). No, it is not (A).", WRONG),
        (SILK, "A", "The answer is B. Correction: the answer is A.", RIGHT),
    ],
    "options listed": [
        (SILK, "A", "A. nightgown\nB. mulberry tree\nThe answer is A", RIGHT),
        (SILK, "C", f"{LISTED}\nThus, C is the correct answer.", RIGHT),
        (SILK, "C", f"{LISTED}\nHence, C is the best option.", RIGHT),
        (SILK, "C", f"{LISTED}\nIn conclusion, C.", RIGHT),
        (SILK, "C", f"{LISTED}\nTherefore, the answer is *garments*.", RIGHT),
        (SILK, "E", f"{LISTED}\nTherefore, the answer is *garments*.", WRONG),
        (SILK, "C", f"{LISTED}\nC is not the correct answer.", WRONG),
        (SILK, "E", f"{LISTED}\nIs C the correct answer?", RIGHT),
        (SILK, "C", "The answer is used like china. One has garments (c)", RIGHT),
        (COUNT, "2", "1. four 2. five", WRONG),
        (COUNT, "1", "1. four\n2. five", WRONG),
    ],
    "options 1-4": [
        (COUNT, "1", "1", RIGHT),
        (COUNT, "1", "1. four", RIGHT),
        (COUNT, "1", "1. Count them.\n2. There are four.", RIGHT),
        (WATER, "2", "There are 3 forms. So it is steam.", RIGHT),
        (WATER, "2", "Option 2", RIGHT),
        (WATER, "2", "2.5", WRONG),
        (WATER, "2", "2,000", WRONG),
        (WATER, "2", "Two", WRONG),
    ],
    "texts that are labels or hold others": [
        (TEA, "B", "It is lemon tea", RIGHT),
        (TEA, "C", "iced lemon tea", RIGHT),
        (TEA, "A", "lemon tea", WRONG),
        (TEA, "B", "iced lemon tea", WRONG),
        (VITAMIN, "A", "The answer is A.", RIGHT),
        (VITAMIN, "D", "The answer is both B and C.", RIGHT),
        (VITAMIN, "D", "both B and C (d)", RIGHT),
        (VITAMIN, "A", "The answer is D.", WRONG),
        (SUM, "1", "(1)", RIGHT),
        (SUM, "2", "The answer is 1.", WRONG),
        (CODE, "A", "C++", RIGHT),
        (CODE, "C", "The answer is a|b.", RIGHT),
        (CODE, "B", "The answer is (x).", RIGHT),
        (CODE, "C", "C++", WRONG),
    ],
    "none of the above": [
        (CITY, "D", "None of the above.", RIGHT),
        (CITY, "D", "The answer is D, none of the above", RIGHT),
        (SILK, "A", "None of the above", WRONG),
    ],
    "unicode": [
        (CAFE, "A", "CAFÉ", RIGHT),
        (CAFE, "B", "the\u0301", RIGHT),
        (CAFE, "C", "don\u2019t know", RIGHT),
        (CAFE, "B", "the", WRONG),
    ],
}
ROWS = [
    pytest.param(*row, id=f"{group}: {row[2]}") for group, rows in VERDICTS.items() for row in rows
]


@pytest.mark.parametrize(("texts", "answer", "completion", "right"), ROWS)
def test_the_verdict_is_as_listed(texts, answer, completion, right):
    labels = "1234" if answer.isdigit() else "ABCDE"
    choices = tuple(Choice(label, text) for label, text in zip(labels, texts, strict=False))
    assert grade(Problem("c", "mc", "Which?", choices, None, answer, "", ""), completion) is right
