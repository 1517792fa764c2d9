"""Grading against the LLM's own answer, where a problem has no right one."""

from dataclasses import replace

import pytest

from citer.data.tasks.grading import Grade, assess, grade
from citer.data.tasks.math import Math
from tests.tiny import MATH

LLMS = replace(MATH, answer=None, written_by="llm")


def test_a_problem_without_an_answer_is_graded_by_its_task_against_the_llms(monkeypatch):
    asked = []

    def same(self, problem, one, other):
        asked.append((problem, one, other))
        return other == "yes"

    monkeypatch.setattr(Math, "same", same)
    assert assess(LLMS, "yes") == Grade(correct=True, share=1.0)
    assert assess(LLMS, "no") == Grade(correct=False, share=0.0)
    assert asked == [(LLMS, LLMS.reference, text) for text in ("yes", "no")]


def test_the_llms_own_answer_is_faithful_and_another_is_not():
    assert grade(LLMS, LLMS.reference)
    assert not grade(LLMS, LLMS.reference.replace("31", "32"))


def test_a_right_answer_decides_even_if_the_llm_wrote_the_reference(monkeypatch):
    monkeypatch.setattr(Math, "same", None)
    mistaken = replace(MATH, reference="The answer is \\boxed{7}.", written_by="llm")
    assert grade(mistaken, "\\boxed{31}")
    assert not grade(mistaken, mistaken.reference)


@pytest.mark.parametrize("lacking", [{"written_by": None}, {"reference": None}])
def test_a_problem_without_an_answer_and_without_the_llms_is_not_graded(lacking):
    with pytest.raises(AssertionError, match="math-0: no "):
        grade(replace(LLMS, **lacking), "31")
