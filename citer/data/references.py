"""Which questions the LLM answers, and the rows that its answers become."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from citer.data.problems import LLM_ROW, Problem
from citer.sections import Against, Source
from citer.storage.schema import SPLITS

TRAINING, JUDGED = SPLITS[:2], SPLITS[2:]


def against_llm(against: Against, judged: Iterable[Problem]) -> bool:
    """Whether an answer to the questions of validation and test is right if it is the LLM's."""
    if against == "auto":
        return any(problem.answer is None for problem in judged)
    return against == "llm"


def asked(problems: Iterable[Problem], source: Source) -> list[Problem]:
    """Return the questions of a training split that the LLM answers, and has not answered yet."""
    if source == "given":
        return []
    wants_all = source != "auto"
    unwritten = (p for p in problems if p.written_by != "llm")
    return [p for p in unwritten if wants_all or p.reference is None]


def read_of(problems: Sequence[Problem], source: Source) -> Sequence[Problem]:
    """Leave out the given references of training rows if `references.source` ignores them."""
    if source != "llm":
        return problems
    return [p if p.written_by == "llm" else replace(p, reference=None) for p in problems]


def asked_of_llm(
    splits: Mapping[str, Sequence[Problem]], source: Source, against: Against, *, finetuned: bool
) -> dict[str, Sequence[Problem]]:
    """Return the questions that the LLM answers; of sft none if the SLM is not `finetuned`."""
    by_llm = against_llm(against, (p for split in JUDGED for p in splits[split]))
    training = {split: asked(splits[split], source) for split in TRAINING}
    if not finetuned:
        training["sft"] = []
    return training | {split: splits[split] if by_llm else [] for split in JUDGED}


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


def sources(problems: Iterable[Problem]) -> str:
    """Name the sources of references: given, llm or both."""
    kinds = {problem.written_by or "given" for problem in problems}
    return "both" if len(kinds) > 1 else "".join(kinds)
