"""Multiple choice: a question with labelled options."""

from functools import cached_property
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

from citer.data.tasks.task import Task

if TYPE_CHECKING:
    from citer.data.problems import Problem
    from citer.data.tasks.formats import Format
    from citer.data.tasks.rows import Requires


class MultipleChoice(Task):
    r"""Rows {"question", "choices", "answerKey", "cot"}; the option named last is graded.

    A completion is correct if its last statement names the right option and no other. Case is
    ignored. An option can be named by

    - label: "(C)", "C.", "C) garments", "answer: C", "the answer is C", "it is C", "\boxed{C}",
      "<answer>C</answer>", "that leaves C", "die Antwort ist C";
    - label and text: "the answer is sharing information (c)." (wrong with another option's text);
    - text alone: "garments", "the answer is garments".

    A label takes precedence over a text. The words after "the answer is", "I choose" or a leading
    "No," take precedence over any other sentence. In detail:

    - A denied option is not named: "not (A)", "A is wrong", "neither (A) nor (B)", "I exclude (A)".
    - A question names nothing, unless the next sentence says yes: "Is it (A)? Yes."
    - Words after "because" or "since" are a reason and name nothing: "A since (B) is wrong".
    - All options in a list are named: "1. four 2. five", "A or B".
    - A number at the start of a line is a label only if the line ends there or the text of that
      option follows. Otherwise it numbers a step.
    """

    name = "mc"
    fields = ("question", "choices")
    reference_field = "cot"
    templates = (
        "Choose the right option and name its letter.\nQuestion: {question}\n{options}\nAnswer:\n",
        "({label}) {text}",
    )
    example: ClassVar = {
        "question": "Which one's first?\tSay why.",
        "choices": {"label": ["A", "B", "C"], "text": ["this", "that", "neither"]},
        "answerKey": "A",
        "cot": "A is first. The answer is (A).",
    }

    def formats(self) -> "tuple[Format, ...]":
        return import_module(".formats", __name__).FORMATS

    def problem(self, row: dict[str, Any], requires: "Requires", source: str) -> "Problem":
        return import_module(".rows", __name__).problem(row, requires, source)

    def prompt_text(self, problem: "Problem") -> str:
        return self.templates[0].format(question=problem.question, options=self._listed(problem))

    def message_text(self, problem: "Problem") -> str:
        form = 'End with the letter of the right option: "The answer is (X)."'
        return f"{problem.question}\n{self._listed(problem)}\n{form}"

    def _listed(self, problem: "Problem") -> str:
        option = self.templates[1]
        lines = (option.format(label=c.label, text=c.text) for c in problem.choices or ())
        return "\n".join(lines)

    def grade(self, problem: "Problem", completion: str) -> bool:
        named = self._options.named_labels(problem.choices or (), completion)
        return named == {problem.answer}

    def same(self, problem: "Problem", one: str, other: str) -> bool:
        """Return whether both name the same single option."""
        if super().same(problem, one, other):
            return True
        first, second = (
            self._options.named_labels(problem.choices or (), text) for text in (one, other)
        )
        return len(first) == 1 and first == second

    def extracted(self, problem: "Problem", completion: str) -> str:
        return ", ".join(sorted(self._options.named_labels(problem.choices or (), completion)))

    @cached_property
    def _options(self) -> ModuleType:
        return import_module(".options", __name__)
