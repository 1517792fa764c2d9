import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citer.data.importing import load_problems
from citer.data.problems import Choice, Problem
from citer.data.tasks.grading import grade
from citer.data.tasks.math import values
from citer.data.tasks.math.quantities import quantity, tidy
from citer.data.tasks.math.values import boxed

MATH = Problem("m", "math", "How many?", None, None, "1234", "", "")


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
def test_these_name_garments(completion):
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
def test_these_do_not(completion):
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
def test_labels_and_texts_that_could_be_mistaken(problem, completion, right):
    assert grade(problem, completion) is right


@pytest.mark.parametrize(
    "completion",
    [
        "\\boxed{1234}",
        "\\boxed{ 1234 }",
        "\\boxed{1,234}",
        "\\boxed{\\$1,234.00}",
        "\\boxed{$1234$}",
        "\\boxed{1{,}234}",
        "\\boxed{1234.}",
        "\\boxed{2468/2}",
        "\\boxed{\\frac{2468}{2}}",
        "\\boxed{x = 1234}",
        "\\boxed{1234 \\text{ apples}}",
        "First \\boxed{}, then \\boxed{7}, at last \\boxed{1234}.",
    ],
)
def test_these_are_1234(completion):
    assert grade(MATH, completion)


@pytest.mark.parametrize(
    "completion",
    [
        "",
        "1234",
        "The answer is 1234",
        "\\boxed{}",
        "\\boxed{1234",
        "\\boxed{1235}",
        "\\boxed{1234.0000001}",
        "\\boxed{-1234}",
        "\\boxed{1,2,34}",
        "\\boxed{12 34}",
        "\\boxed{1234/0}",
        "\\boxed{1234} or rather \\boxed{7}",
        "\\boxed{1234} and then \\boxed{12",
        "\\boxed{\\frac{1234}{}}",
        "\\boxed{words}",
    ],
)
def test_these_are_not_1234(completion):
    assert not grade(MATH, completion)


@pytest.mark.parametrize(
    ("answer", "given"),
    [
        ("\\frac{1}{2}", "0.5"),
        ("1/3", "\\dfrac{1}{3}"),
        ("50\\%", "50"),
        ("\\text{Monday}", "Monday"),
        ("2\\sqrt{2}", "\\sqrt{8}"),
        ("(1,2)", "(1, 2)"),
        ("(x+1)^2", "x^2+2x+1"),
        ("\\{1,2\\}", "\\{2, 1\\}"),
        ("-3", "- 3"),
    ],
)
def test_equal_in_mathematics_is_right(answer, given):
    assert grade(replace(MATH, answer=answer), f"So \\boxed{{{given}}}.")


def test_what_never_ends_is_wrong_within_the_time_limit(monkeypatch):
    monkeypatch.setattr(values, "TIMEOUT_SECONDS", 1)
    assert not grade(MATH, "\\boxed{9^{9^{9^9}}}")


def test_grades_off_the_main_thread():
    with ThreadPoolExecutor() as pool:
        assert pool.submit(grade, MATH, "\\boxed{\\frac{4936}{4}}").result()
        assert not pool.submit(grade, MATH, "\\boxed{\\frac{4937}{4}}").result()


balanced = st.recursive(
    st.text("ab1 ^_", max_size=4) | st.sampled_from(["\\{", "\\}", "\\frac"]),
    lambda inner: st.tuples(inner, inner).map(lambda two: f"{{{two[0]}}}{two[1]}"),
)


@given(balanced)
def test_boxed_gives_all_that_its_braces_hold(inside):
    assert boxed("\\boxed{no} so \\boxed{" + inside + "} } and {") == inside.strip()


@given(st.integers(-(10**9), 10**9), st.integers(0, 99))
def test_number_reads_what_python_writes(whole, hundredths):
    value = f"{whole:,}.{hundredths:02d}"
    assert exact(f"\\${value}") == exact(value.replace(",", "")) == exact(f" {value} ")
    assert exact(str(whole)) == whole


def exact(text):
    return quantity(tidy(text)).value


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


@pytest.mark.parametrize("length", [values.LONGEST, values.LONGEST + 1])
def test_math_verify_gets_no_long_text(monkeypatch, length):
    seen = []
    monkeypatch.setattr(values, "_verified", lambda *texts: seen.append(texts) or True)
    assert grade(MATH, f"\\boxed{{{'x+' * length}"[: 7 + length] + "}") is (
        length == values.LONGEST
    )
    assert bool(seen) is (length == values.LONGEST)
