"""Questions that are their own prompt. Answers are compared as text or as JSON, or not at all."""

import json
from typing import Any, ClassVar

from citer.data.problems import Problem, problem_key
from citer.data.tasks.plain_values import contains, is_same, json_share, same_json
from citer.data.tasks.rows import Row, RowError, as_text, clean, nested, text, text_if
from citer.data.tasks.task import Task
from citer.errors import shown


class Plain(Task):
    """Rows {"question", "answer"} and, if it is more than the answer, a "reference".

    The prompt is the question as it stands, so the row says in which form to answer.
    """

    fields = ("question",)
    reference_field = "reference"
    templates = ()

    def problem(self, row: Row, source: str) -> Problem:
        """Read a row. Without a reference, the answer is the reference."""
        question, value, answer = text(row, "question", "the question"), row.get("answer"), None
        if self.graded and value not in (None, ""):
            answer = self.read(value)
            if answer is None:
                raise RowError("answer", shown(value), self.answer_text)
        given = text_if(row, "reference", self.reference_text)
        reference = given or (answer and self.shortest(answer))
        key = problem_key(self.name, question, None)
        return Problem(key, self.name, question, None, reference, answer, source, split="")

    def read(self, value: Any) -> str | None:
        """Return the answer of a row as the grader reads it, None if it is none."""
        value = as_text(value)
        return clean("answer", value) if isinstance(value, str) and value.strip() else None

    def shortest(self, answer: str) -> str:
        """Return the shortest right completion."""
        return answer

    def prompt_text(self, problem: Problem) -> str:
        return f"{problem.question}\n"

    def message_text(self, problem: Problem) -> str:
        return problem.question

    def same(self, problem: Problem, one: str, other: str) -> bool:
        return is_same(one, other)


class Exact(Plain):
    """The completion must be the answer. Case, white space and one final full stop are ignored.

    Straight and curved quotes are the same, and so are short dashes and hyphens, and composed and
    decomposed accents.
    """

    name = "exact"
    wider = "contains"
    example: ClassVar = {"question": "Opposite of\tleft? One word:", "answer": "Right"}

    def grade(self, problem: Problem, completion: str) -> bool:
        return is_same(problem.answer or "", completion)


class Contains(Plain):
    """The completion must contain the answer, or one text of a list of answers.

    Words count as a whole: "3" is not in "13", "3.5", "-3", "3/4" or "3kg", and "C" is not in
    "C++". In Chinese, Japanese and Korean an answer may stand anywhere. Case, white space, bold and
    italic type, the forms of quotes, dashes and accents, and the commas of thousands are ignored.
    A denial is not recognised: "not Paris" contains "Paris".
    """

    name = "contains"
    right_is_same = False  # the same words are
    example: ClassVar = {"question": "Who wrote Émile?", "answer": ["Rousseau", "J.-J. Rousseau"]}
    answer_text = "a text, or a list of texts: each is a right answer"

    def read(self, value: Any) -> str | None:
        """Read one text or a list of texts, also in a CSV cell. Each is a line of the answer."""
        listed = nested(value)
        are_texts = isinstance(listed, list) and all(isinstance(each, str) for each in listed)
        values = listed if are_texts else value if isinstance(value, list) else [value]
        texts = [super(Contains, self).read(each) for each in values]
        if not texts or None in texts:
            return None
        return "\n".join(" ".join(each.split()) for each in texts if each)

    def shortest(self, answer: str) -> str:
        return answer.partition("\n")[0]

    def grade(self, problem: Problem, completion: str) -> bool:
        return contains(problem.answer or "", completion)


class Json(Plain):
    """The completion must hold a JSON value that equals the answer.

    The last ```json fence is read. Without one, the whole completion is read. If that is no JSON,
    the last object or array in it is read, unless a later bracket opens without a value. If a key
    stands twice, its last value counts. The order of an object's fields does not count. 1 equals
    1.0. If both values are objects, the share is the number of equal fields, divided by the number
    of fields of both together. A text as answer is read as JSON.
    """

    name = "json"
    example: ClassVar = {"question": "3 red pens, as JSON:", "answer": {"red": 3, "of": ["pens"]}}
    answer_text = "a JSON value, or a text that is JSON"

    def read(self, value: Any) -> str | None:
        try:
            content = json.loads(value if isinstance(value, str) else json.dumps(value))
            written = json.dumps(content, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError, RecursionError):  # TypeError: a date or bytes, from Parquet
            return None
        return clean("answer", written)

    def grade(self, problem: Problem, completion: str) -> float:
        return json_share(problem.answer or "", completion)

    def same(self, problem: Problem, one: str, other: str) -> bool:
        """Return whether the last JSON values of both are equal. Case counts in their texts."""
        return Task.same(self, problem, one, other) or same_json(one, other)


class Open(Plain):
    """Rows {"question"} and, if there is one, a "reference". No program grades the answers.

    Nothing is an answer to grade against, so a router is evaluated by its fidelity to the LLM.
    """

    name = "open"
    graded = False
    example: ClassVar = {"question": "Why's the sky\tblue?", "reference": "Air scatters blue."}

    def grade(self, problem: Problem, completion: str) -> bool:
        raise NotImplementedError("no problem of this task has an answer")
