"""The taught problems in every split, for tests of the stage `references`."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from citer.config.params import Params
from citer.data.problems import Problem, read_problems, write_problems
from citer.stages import paths
from citer.storage.schema import SPLITS
from tests.stages.sections import with_section
from tests.taught import problems

STAMP = {"tasks": ["math", "mc"], "seed": 1}
LIMIT = 60  # tokens, enough for every answer of the taught LLM


class Own(NamedTuple):
    """The LLM's own answer to a question, decoded alone."""

    text: str
    right: bool
    tokens: int


Change = Callable[[Problem], Problem]


def write_splits(change: Change = lambda problem: problem) -> None:
    """Write the taught problems into every split, with ids of the split."""
    for split in SPLITS:
        named = (
            replace(problem, problem_id=f"{split}-{problem.problem_id}", split=split)
            for problem in problems(12)
        )
        write_problems(paths.problems(split), map(change, named), STAMP)


def no_answer(problem: Problem) -> Problem:
    return replace(problem, answer=None)


def no_reference(problem: Problem) -> Problem:
    return replace(problem, reference=None)


def bare(problem: Problem) -> Problem:
    return no_answer(no_reference(problem))


def with_source(
    params: Params,
    source: str,
    against: str = "answers",
    slots: int = 3,
    limit: int = LIMIT,
    **changes: object,
) -> Params:
    params = with_section(params, "references", source=source, **changes)
    params = with_section(params, "decode", slots=slots, max_new_tokens=limit)
    return with_section(params, "evaluate", against=against)


def made(split: str = "sft") -> list[Problem]:
    return read_problems(paths.referenced(split))


def by_llm(problem: Problem, own: dict[str, Own]) -> Problem:
    return replace(problem, reference=own[problem.question].text, written_by="llm")


def given(split: str = "sft") -> list[Problem]:
    return read_problems(paths.problems(split))
