"""The floor: how often an LLM must be right before anything is routed for its sake."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from statistics import fmean
from typing import TYPE_CHECKING, NamedTuple

from citer.data.problems import Problem

if TYPE_CHECKING:  # the engine with its models takes seconds to import
    from citer.evaluation.sweep import Result

ABOVE_CHANCE = 0.1
WIDTH = 160  # characters of a line of an answer that is shown


class Shortfall(NamedTuple):
    """A task on which the LLM is right on fewer questions than expected."""

    task: str
    questions: int
    right: float  # a share, like `floor`
    floor: float

    def __str__(self) -> str:
        return (
            f"LLM right on {self.right:.1%} of {self.questions} {self.task} questions of "
            f"validation, expected at least {self.floor:.1%}"
        )


def shortfalls(results: Iterable["Result"], llm_floor: float) -> Iterator[Shortfall]:
    """The tasks on which the LLM's own answers are right too rarely."""
    by_task = sorted(results, key=lambda result: result.problem.task)
    for task, group in groupby(by_task, key=lambda result: result.problem.task):
        answered = list(group)
        right = fmean(result.correct for result in answered)
        least = floor([result.problem for result in answered], llm_floor)
        if right < least:
            yield Shortfall(task, len(answered), right, least)


def floor(problems: Sequence[Problem], llm_floor: float) -> float:
    """`llm_floor`; with options 0.1 above chance at least, unless `llm_floor` is 0.

    Chance is the mean of 1 / number of options.
    """
    options = [len(problem.choices) for problem in problems if problem.choices]
    if not (llm_floor and options):
        return llm_floor
    return max(llm_floor, fmean(1 / count for count in options) + ABOVE_CHANCE)


def shown(problem: Problem, text: str, truncated: bool) -> str:
    """An answer beside what was expected, three short lines."""
    return (
        f"question: {_line(problem.question)}\n"
        f"     LLM: {_line(text)}{' (cut off)' if truncated else ''}\n"
        f"expected: {_line(problem.answer or '')}\n"
    )


def _line(text: str) -> str:
    """Both ends of a long text, since answers come last; no control characters.

    A terminal would obey those that a model writes.
    """
    joined = " ".join(text.split())
    plain = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in joined)
    half = WIDTH // 2
    return plain if len(plain) <= WIDTH else f"{plain[:half]} … {plain[-half:]}"
