"""Questions that are their own prompt. Answers are compared as text or as JSON, or not at all."""

from functools import cached_property
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

from citer.data.tasks.task import Task

if TYPE_CHECKING:
    from citer.data.problems import Problem
    from citer.data.tasks.rows import Requires


class Plain(Task):
    """Rows {"question", "answer"} and, if it is more than the answer, a "reference".

    The prompt is the question as it stands, so the row says in which form to answer.
    """

    fields = ("question",)
    reference_field = "reference"
    templates = ()

    def problem(self, row: dict[str, Any], requires: "Requires", source: str) -> "Problem":
        return import_module(".rows", __name__).problem(self.name, row, requires, source)

    def prompt_text(self, problem: "Problem") -> str:
        return f"{problem.question}\n"

    def message_text(self, problem: "Problem") -> str:
        return problem.question

    def same(self, problem: "Problem", one: str, other: str) -> bool:
        """Return whether the texts are equal, ignoring case, white space and a final full stop."""
        return bool(self._values.is_same(one, other))

    @cached_property
    def _values(self) -> ModuleType:
        return import_module(".values", __name__)


class Exact(Plain):
    """The completion must be the answer. Case, white space and one final full stop are ignored.

    Straight and curved quotes are the same, and so are composed and decomposed accents.
    """

    name = "exact"
    wider = "contains"
    example: ClassVar = {"question": "Opposite of\tleft? One word:", "answer": "Right"}

    def grade(self, problem: "Problem", completion: str) -> bool:
        return self._values.is_same(problem.answer, completion)


class Contains(Plain):
    """The completion must contain the answer, or one text of a list of answers.

    Words count as a whole: "3" is not in "13", "3.5", "-3" or "3/4", and "C" is not in "C++". In
    Chinese and Japanese, which have no spaces between words, an answer may stand anywhere. Case,
    white space and the forms of quotes and accents are ignored. A denial is not recognised: "not
    Paris" contains "Paris".
    """

    name = "contains"
    example: ClassVar = {"question": "Who wrote Émile?", "answer": ["Rousseau", "J.-J. Rousseau"]}

    def grade(self, problem: "Problem", completion: str) -> bool:
        return self._values.contains(problem.answer, completion)


class Json(Plain):
    """The completion must hold a JSON value that equals the answer.

    The value is that of the last ```json fence; without one, the last fence that names no language
    and holds only JSON; without a fence, the whole completion, or the last object or array in it. A
    completion cannot be read if other text in square or curly brackets follows. An object with the
    same key twice equals nothing. The order of an object's fields does not count, and 1 equals 1.0.
    If both values are objects, the share is the number of equal fields, divided by the number of
    fields of both together. A text as answer is read as JSON.
    """

    name = "json"
    example: ClassVar = {"question": "3 red pens, as JSON:", "answer": {"red": 3, "of": ["pens"]}}

    def grade(self, problem: "Problem", completion: str) -> float:
        return self._values.json_share(problem.answer, completion)

    def same(self, problem: "Problem", one: str, other: str) -> bool:
        """Return whether the last JSON values of both are equal. Case counts in their texts."""
        return Task.same(self, problem, one, other) or self._values.same_json(one, other)


class Open(Plain):
    """Rows {"question"} and, if there is one, a "reference". No program grades the answers.

    Nothing is an answer to grade against, so a router is evaluated by its fidelity to the LLM.
    """

    name = "open"
    example: ClassVar = {"question": "Why's the sky\tblue?", "reference": "Air scatters blue."}

    def grade(self, problem: "Problem", completion: str) -> bool:
        raise NotImplementedError("no problem of this task has an answer")
