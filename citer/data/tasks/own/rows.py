"""Problems of a task of the user."""

from typing import TYPE_CHECKING, Any

from citer.data.problems import Problem, problem_key
from citer.data.tasks.own.source import called
from citer.data.tasks.rows import Requires, RowError, clean
from citer.errors import InputError, shown

if TYPE_CHECKING:
    from citer.data.tasks.own import OwnTask

FIELDS = ("question", "answer", "reference")


def problem(task: "OwnTask", row: dict[str, Any], requires: Requires, source: str) -> Problem:
    """Turn a raw row into a problem, and try its prompt. Raises RowError."""
    if requires == "answer" and not task.source.has("grade"):
        expected = "a method grade() to read it, or evaluate.against: llm"
        raise RowError("answer", f"not read by the task {task.source.class_name}", expected)
    fields = _fields(task, row)
    needed = _needed(task, requires)
    question, answer, reference = (_text(fields, name, name in needed) for name in FIELDS)
    if answer is not None and not task.source.has("grade"):
        raise RowError("answer", f"problem() made {shown(answer)}", "a method grade() to read it")
    key = problem_key(task.name, question or "", None)
    made = Problem(key, task.name, question or "", None, reference, answer, source, split="")
    for method, write in (("prompt()", task.prompt_text), ("message()", task.message_text)):
        try:
            clean(method, write(made))
        except RowError:
            raise
        except InputError as error:
            raise RowError(method, str(error).removesuffix("; expected a text"), "a text") from None
    return made


def _needed(task: "OwnTask", requires: Requires) -> set[str]:
    """Return the fields that a row must have. A task without a grader needs no answer to learn."""
    graded = requires == "answer" or (requires == "reference" and task.source.has("grade"))
    return (
        {"question"}
        | ({"answer"} if graded else set())
        | ({"reference"} if requires == "reference" else set())
    )


def _fields(task: "OwnTask", row: dict[str, Any]) -> dict[str, Any]:
    expected = f"a dict with {', '.join(FIELDS)}"
    try:
        made = called(task.source, "problem", row)
    except InputError as error:
        raise RowError("row", str(error), expected) from None
    if not isinstance(made, dict) or not set(made) <= set(FIELDS):
        raise RowError("row", f"problem() returned {shown(made)}", expected)
    return made


def _text(fields: dict[str, Any], name: str, required: bool) -> str | None:
    """Return a text as it is: white space may count, as in an indented line of code."""
    value = fields.get(name)
    if value is None and not required:
        return None
    if not isinstance(value, str) or not value.strip():
        raise RowError(name, f"problem() made {shown(value)}", "a text")
    clean(name, value)
    return value
