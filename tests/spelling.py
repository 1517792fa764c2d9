"""A task, as a user could add it: the completion must be the expected text."""

from typing import Any, ClassVar

from citer.data.problems import Problem, problem_key
from citer.data.tasks import Task
from citer.data.tasks.rows import text, text_if

ROWS = [{"prompt": f"Spell {n}.", "expected": f" {n} {n} "} for n in range(100)]


class Spelling(Task):
    """Rows {"prompt", "expected"}."""

    name = "spelling"
    fields = ("prompt",)
    reference_field = answer_field = "expected"
    answer_text = "the whole answer"
    templates = ("Say exactly: {}\n",)
    example: ClassVar = ROWS[0]

    def problem(self, row: dict[str, Any], source: str) -> Problem:
        question = text(row, "prompt", "what to say")
        expected = text_if(row, "expected", self.answer_text)
        key = problem_key(self.name, question, None)
        return Problem(key, self.name, question, None, expected, expected, source, split="")

    def prompt_text(self, problem: Problem) -> str:
        return self.templates[0].format(problem.question)

    def message_text(self, problem: Problem) -> str:
        return f"Say exactly: {problem.question}"

    def grade(self, problem: Problem, completion: str) -> bool:
        return completion.strip() == problem.answer
