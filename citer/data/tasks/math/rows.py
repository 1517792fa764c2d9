"""Rows {"problem", "solution", "answer"}: at least one of the last two holds the answer."""

import re
from collections.abc import Callable
from typing import Any

from citer.data.problems import Problem, problem_key
from citer.data.tasks.math.values import LONGEST
from citer.data.tasks.rows import Requires, RowError, text, text_if

Stated = Callable[[str], str | None]

# Signs of a whole solution, not a final answer: sentences, GSM8K's marks, text before a box.
RATIONALE = re.compile(r"####|<<|(?:\d|[a-z]{3})[.!?]\s+[A-Z][a-z]|\w\W*\\boxed")


def problem(
    task: str, stated: Stated, row: dict[str, Any], requires: Requires, source: str
) -> Problem:
    """Turn a raw row into a problem. `stated` reads the final answer. Raises RowError."""
    question = text(row, "problem", "the problem")
    training = requires == "reference"
    reference = text_if(row, "solution", "a solution in training files", required=training)
    answer = _short_answer(row)
    if reference is not None:
        answer = answer or _final_answer(reference, stated)
    if answer is None and requires != "question":
        raise RowError("solution", "missing, and no `answer`", "either, to grade against")
    key = problem_key(task, question, None)
    return Problem(key, task, question, None, reference, answer, source, split="")


def _short_answer(row: dict[str, Any]) -> str | None:
    answer = text_if(row, "answer", "the final answer", required=False)
    if answer and (len(answer) > LONGEST or RATIONALE.search(answer)):
        found = f"a whole solution, ends {answer[-60:]!r}"
        raise RowError("answer", found, "the final answer alone, and the rest in `solution`")
    return answer


def _final_answer(solution: str, stated: Stated) -> str:
    answer = stated(solution)
    if not answer:
        found = f"no complete \\boxed{{}}, ends {solution[-60:]!r}"
        raise RowError("solution", found, "the final answer in its last \\boxed{}")
    return answer
