"""Grade completions. Rollouts, evaluation and the check of every reference use this grader."""

from collections.abc import Iterable
from typing import NamedTuple

from citer.data.problems import Problem
from citer.data.tasks import find_task, task_label
from citer.data.tasks.task import GraderError


class Grade(NamedTuple):
    """Whether a completion is right, its share of the answer, and why its grader failed, if so."""

    correct: bool
    share: float  # from 0 to 1
    failure: str | None = None


WRONG = Grade(correct=False, share=0.0)  # also of a truncated answer


def grade(problem: Problem, completion: str) -> bool:
    """Return whether `completion` answers `problem` correctly (see `assess`)."""
    return assess(problem, completion).correct


def assess(problem: Problem, completion: str) -> Grade:
    """Grade `completion`, the text after the prompt, against the problem's answer (`Task.grade`).

    If there is none, it is compared with the reference, which the LLM must have written
    (`Task.same`). Raises InputError if the process of a user's grader does not start.
    """
    task = find_task(problem.task)
    try:
        if problem.answer is not None:
            share = task.grade(problem, task.said(completion))
        else:
            written = problem.reference if problem.written_by == "llm" else None
            assert written is not None, f"{problem.problem_id}: no answer to grade against"
            share = same(problem, written, completion)
    except GraderError as error:
        return WRONG._replace(failure=str(error))
    return Grade(share >= task.pass_share, float(share))


def same(problem: Problem, one: str, other: str) -> bool:
    """Return whether two completions give the same answer. Raises GraderError (see `Task.same`)."""
    task = find_task(problem.task)
    return task.same(problem, task.said(one), task.said(other))


def extracted(problem: Problem, completion: str) -> str | None:
    """Return what the grader reads in a completion, if the task says it (`Task.extracted`)."""
    task = find_task(problem.task)
    return task.extracted(problem, task.said(completion))


class Failures(NamedTuple):
    """Answers on which the grader of a user's task failed: how many, and the first one."""

    task: str
    answers: int
    failure: str
    problem_id: str

    def __str__(self) -> str:
        failed = f"the grader of {task_label(self.task)} failed on {self.answers:,} answers"
        quoted = self.failure.replace("`", "'")  # a model may have written Markdown
        return f"{failed}, which count as wrong; on problem {self.problem_id}: `{quoted}`"


def failures(rows: Iterable[tuple[str, str, str | None]]) -> list[Failures]:
    """Count the failures of each task in rows of task, problem_id and failure, if any."""
    found: dict[str, Failures] = {}
    for task, key, failure in rows:
        if failure:
            first = found.get(task, Failures(task, 0, failure, key))
            found[task] = first._replace(answers=first.answers + 1)
    return list(found.values())
