"""Which questions the LLM answers, and the rows that its answers become."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from citer.data.problems import LLM_ROW, Problem
from citer.sections import Against, Source


def against_llm(against: Against, judged: Iterable[Problem]) -> bool:
    """Whether an answer to the questions of validation and test is right if it is the LLM's."""
    if against == "auto":
        return any(problem.answer is None for problem in judged)
    return against == "llm"


def asked(problems: Iterable[Problem], source: Source) -> list[Problem]:
    """Return the questions of a training split that the LLM answers.

    A reference with audits is an answer that was served, so it stays as it is.
    """
    if source == "given":
        return []
    wants_all = source != "auto"
    return [p for p in problems if not p.audits and (wants_all or p.reference is None)]


def learned(problem: Problem, text: str | None, source: Source) -> Sequence[Problem]:
    """Return the rows of a question of a training split, given the LLM's answer, if it is good."""
    own = None if text is None else replace(problem, reference=text, written_by="llm")
    if source == "llm" or problem.reference is None:
        return [own] if own else []
    if own is None or text == problem.reference:
        return [problem]
    return [problem, replace(own, problem_id=problem.problem_id + LLM_ROW)]


def judged(problem: Problem, text: str | None) -> Sequence[Problem]:
    """Return the row of a question of validation or test: to be right is to answer as the LLM."""
    if text is None:
        return []
    return [replace(problem, answer=None, reference=text, written_by="llm")]
