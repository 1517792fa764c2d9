"""Choose how label@k decides contested tokens. `probe` writes the choice, and label@k reads it."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from citer.config.params import LabelParams, Params
from citer.data.problems import Problem
from citer.errors import InputError
from citer.stages import paths
from citer.storage.tables import read_as, write_json

OutcomeName = Literal["rollout", "agreement", "suffix"]


class Chosen(BaseModel):
    """The content of `paths.OUTCOME`. The reason has no times: it changes with the choice only."""

    outcome: OutcomeName
    reason: str


def write_outcome(section: LabelParams, problems: Sequence[Problem], minutes: float) -> str:
    """Write the outcome and its reason. Return both in a sentence.

    `problems` are those of the preference split. `minutes` is the forecast of the rollouts of all
    iterations.
    """
    chosen = choose(section, problems, minutes)
    write_json(paths.OUTCOME, chosen.model_dump())
    return f"label.outcome: {chosen.outcome}, since {chosen.reason}"


def choose(section: LabelParams, problems: Sequence[Problem], minutes: float) -> Chosen:
    """Choose the outcome by the answers of the rows and the `minutes` of all rollouts."""
    if section.outcome != "auto":
        return Chosen(outcome=section.outcome, reason="params.yaml sets it")
    without = sum(not _is_decidable(problem) for problem in problems)
    if without:
        reason = f"{without} of {len(problems)} preference rows have no right answer"
        return Chosen(outcome="suffix", reason=reason)
    if minutes > section.minutes:
        return Chosen(outcome="suffix", reason="rollouts would take longer than label.minutes")
    reason = "every rollout can be graded, and all of them fit into label.minutes"
    return Chosen(outcome="rollout", reason=reason)


def _is_decidable(problem: Problem) -> bool:
    """Whether rollouts can decide its contested tokens; an audited answer has none."""
    return problem.answer is not None or problem.audits is not None


def check_answers(outcome: str, problems: Iterable[Problem], path: Path) -> None:
    """Raise InputError for the first problem whose rollouts cannot be graded."""
    bad = next((each for each in problems if not _is_decidable(each)), None)
    if outcome == "rollout" and bad:
        raise InputError(
            f"{path}: problem {bad.problem_id}: no right answer to grade rollouts by; expected one,"
            " or label.outcome: suffix, agreement or auto in params.yaml"
        )


def chosen_outcome(params: Params) -> OutcomeName:
    """Return the outcome that `probe` wrote. Raises InputError if there is none that fits."""
    asked, again = params.label.outcome, "run `citer probe`, or `citer run`"
    if not paths.OUTCOME.exists():
        raise InputError(f"{paths.OUTCOME}: no such file, expected the chosen outcome; {again}")
    outcome = read_as(paths.OUTCOME, Chosen).outcome
    if asked not in ("auto", outcome):
        raise InputError(f"{paths.OUTCOME}: {outcome}, expected label.outcome, {asked}; {again}")
    return outcome


def sources(problems: Iterable[Problem]) -> str:
    """Name the sources of references: given, llm, both or audited, joined by "+"."""
    kinds = {"audited" if p.audits is not None else p.written_by or "given" for p in problems}
    if {"given", "llm"} <= kinds:
        kinds = kinds - {"given", "llm"} | {"both"}
    return "+".join(sorted(kinds))
