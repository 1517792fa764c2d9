"""The grader of math answers."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from citer.data.problems import Problem
from citer.data.tasks import math_values as values
from citer.data.tasks.grading import grade
from citer.data.tasks.math import boxed

MATH = Problem("m", "math", "How many?", None, None, "1234", "", "")


@pytest.mark.parametrize(
    ("completion", "right"),
    [
        ("\\boxed{1234}", True),
        ("\\boxed{ 1234 }", True),
        ("\\boxed{$1234$}", True),
        ("\\boxed{1234.}", True),
        ("\\boxed {1234}", True),
        ("$\\boxed{1234}$", True),
        ("**\\boxed{1234}**", True),
        ("First \\boxed{}, then \\boxed{7}, at last \\boxed{1234}.", True),
        ("", False),
        ("1234", False),
        ("The answer is 1234", False),
        ("\\boxed{}", False),
        ("\\boxed{1234", False),
        ("\\boxed{1235}", False),
        ("\\boxed{-1234}", False),
        ("\\boxed{1234/0}", False),
        ("\\boxed{1234} or rather \\boxed{7}", False),
        ("\\boxed{1234} and then \\boxed{12", False),
        ("\\boxed{words}", False),
    ],
)
def test_the_content_of_the_last_box_is_graded(completion, right):
    assert grade(MATH, completion) is right


def test_an_answer_that_takes_too_long_to_compute_is_wrong(monkeypatch):
    monkeypatch.setattr(values, "TIMEOUT_SECONDS", 1)
    assert not grade(MATH, "\\boxed{9^{9^{9^9}}}")


def test_grading_works_outside_the_main_thread():
    with ThreadPoolExecutor() as pool:
        assert pool.submit(grade, MATH, "\\boxed{\\frac{4936}{4}}").result()
        assert not pool.submit(grade, MATH, "\\boxed{\\frac{4937}{4}}").result()


balanced = st.recursive(
    st.text("ab1 ^_", max_size=4) | st.sampled_from(["\\{", "\\}", "\\frac"]),
    lambda inner: st.tuples(inner, inner).map(lambda two: f"{{{two[0]}}}{two[1]}"),
)


@given(balanced)
def test_boxed_returns_the_whole_content_of_its_braces(inside):
    assert boxed("\\boxed{no} so \\boxed{" + inside + "} } and {") == inside.strip()


@given(st.integers(-(10**9), 10**9), st.integers(0, 99))
def test_numbers_are_parsed_as_python_formats_them(whole, hundredths):
    value = f"{whole:,}.{hundredths:02d}"
    for written in (f"\\${value}", value.replace(",", ""), f" {value} ", f"{value}\\text{{ cm}}"):
        assert values.same_value(value, written)
        assert not values.same_value(f"{whole:,}.{hundredths:02d}1", written)


@pytest.mark.parametrize("length", [values.LONGEST, values.LONGEST + 1])
def test_long_texts_are_not_passed_to_math_verify(monkeypatch, length):
    seen = []
    monkeypatch.setattr(values, "_verified", lambda *texts: seen.append(texts) or True)
    assert grade(MATH, f"\\boxed{{{'x+' * length}"[: 7 + length] + "}") is (
        length == values.LONGEST
    )
    assert bool(seen) is (length == values.LONGEST)
