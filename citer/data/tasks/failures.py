"""Answers on which the grader of a user's task failed. They count as wrong."""

from collections.abc import Iterable
from typing import NamedTuple

from citer.data.tasks import task_label


class Failures(NamedTuple):
    """The failures of one task's grader, with the first one as an example."""

    task: str
    answers: int
    failure: str
    problem_id: str

    def __str__(self) -> str:
        failed = f"the grader of {task_label(self.task)} failed on {self.answers:,} answers"
        return f"{failed}, which count as wrong; on problem {self.problem_id}: {self.failure}"


def failures(rows: Iterable[tuple[str, str, str | None]]) -> list[Failures]:
    """Count the failures of each task in rows of task, problem_id and failure, if any."""
    return merged(Failures(task, 1, failure, key) for task, key, failure in rows if failure)


def merged(parts: Iterable[Failures]) -> list[Failures]:
    """Add up the failures of each task."""
    found: dict[str, Failures] = {}
    for part in parts:
        first = found.get(part.task, part._replace(answers=0))
        found[part.task] = first._replace(answers=first.answers + part.answers)
    return list(found.values())
