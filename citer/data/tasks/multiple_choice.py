"""Multiple choice: a question with labelled options."""

from typing import Any, ClassVar

from citer.data.problems import Choice, Problem, problem_key
from citer.data.tasks.options import named_labels
from citer.data.tasks.rows import Format, Row, RowError, clean, given, nested, text, text_if
from citer.data.tasks.task import Task
from citer.errors import shown

LETTERS = "ABCDE"
LABEL_SETS = (LETTERS, "1234")
FORMS = '{"text": [texts], "label": [labels]} or a list of 2 to 5 texts; `options` is not read'


def _mmlu(row: Row) -> Row:
    """Give the options letters. The answer is an index from 0 on, or already a letter."""
    texts = nested(row.get("choices"))
    are_texts = isinstance(texts, list) and all(isinstance(each, str) for each in texts)
    if not are_texts or not 2 <= len(texts) <= len(LETTERS):
        expected = f"a list of 2 to {len(LETTERS)} texts, with commas between them"
        raise RowError("choices", shown(texts), expected)
    labels = list(LETTERS[: len(texts)])
    row = row | {"choices": {"text": texts, "label": labels}, "answerKey": None}
    if given(row, "answer"):
        row["answerKey"] = _letter(row["answer"], labels)
    return row


def _letter(answer: Any, labels: list[str]) -> str:
    by_index = {str(index): label for index, label in enumerate(labels)}
    letter = by_index.get(str(answer), str(answer))
    if letter in labels:
        return letter
    expected = f"an index 0-{len(labels) - 1} or a letter {labels[0]}-{labels[-1]}"
    raise RowError("answer", shown(answer), expected)


def _choices(value: Any) -> tuple[Choice, ...]:
    """Return the options of the field `choices`. Raises RowError."""
    if isinstance(value, str):
        raise RowError("choices", shown(value), "JSON or a Python literal, no numpy array(...)")
    if not isinstance(value, dict) or not all(_texts(value.get(key)) for key in ("text", "label")):
        raise RowError("choices", shown(value), FORMS)
    if empty := [place for place, text in enumerate(value["text"]) if not text.strip()]:
        raise RowError(
            "choices", f"the text at index {empty[0]} is empty", "a text for each option"
        )
    labels, texts = value["label"], value["text"]
    if len(labels) != len(texts) or len(labels) < 2:
        found = f"{len(labels)} labels, {len(texts)} texts"
        raise RowError("choices", found, "one label per text, at least 2")
    if len({*labels}) != len(labels) or not any({*labels} <= {*known} for known in LABEL_SETS):
        raise RowError("choices.label", shown(labels), "different labels of A-E or of 1-4")
    return tuple(
        Choice(label, clean("choices.text", text))
        for label, text in zip(labels, texts, strict=True)
    )


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(v, str) for v in value)


class MultipleChoice(Task):
    r"""Rows {"question", "choices", "answerKey", "cot"}; the option named last is graded.

    A completion is correct if its last statement names the right option and no other. Case is
    ignored. An option can be named by

    - label: "(C)", "C" alone in its line, "C." or "C)" at the start of a line, "answer: C",
      "the answer is C", "option C", "I choose C", "so it is C", "C is correct", "\boxed{C}";
    - label and text: "the answer is sharing information (c)." (wrong with another option's text);
    - text alone: "garments", "the answer is garments".

    A label takes precedence over a text. The words after "the answer is", "I choose" or a leading
    "No," take precedence over any other sentence; a text among them, over earlier ones. In detail:

    - An option after "not" or "neither", or before "is not" or "is wrong", is not named.
    - A question names nothing.
    - All options of the statement are named: "the answer is A or B".
    - "2." at the start of a line counts a step, unless the text of option 2 follows.
    """

    name = "mc"
    fields = ("question", "choices")
    reference_field = "cot"
    reference_text = "a rationale in training files"
    answer_field = "answerKey"
    answer_text = "the right option's label"
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
    formats: ClassVar = (
        Format(
            "mmlu",
            "`question` and `choices` as a list",
            lambda row: given(row, "question") and isinstance(nested(row.get("choices")), list),
            _mmlu,
            {"answerKey": "answer"},
        ),
        Format("mc", "`question`", lambda row: given(row, "question")),
    )

    def problem(self, row: Row, source: str) -> Problem:
        question = text(row, "question", "the question")
        choices = _choices(nested(row.get("choices")))
        answer = text_if(row, self.answer_field, self.answer_text)
        reference = text_if(row, self.reference_field, self.reference_text)
        labels = [choice.label for choice in choices]
        if answer is not None and answer not in labels:
            raise RowError("answerKey", repr(answer), f"one of {', '.join(labels)}")
        key = problem_key(self.name, question, choices)
        return Problem(key, self.name, question, choices, reference, answer, source, split="")

    def prompt_text(self, problem: Problem) -> str:
        return self.templates[0].format(question=problem.question, options=self._listed(problem))

    def message_text(self, problem: Problem) -> str:
        form = 'End with the letter of the right option: "The answer is (X)."'
        return f"{problem.question}\n{self._listed(problem)}\n{form}"

    def _listed(self, problem: Problem) -> str:
        option = self.templates[1]
        lines = (option.format(label=c.label, text=c.text) for c in problem.choices or ())
        return "\n".join(lines)

    def grade(self, problem: Problem, completion: str) -> bool:
        return named_labels(problem.choices or (), completion) == {problem.answer}

    def same(self, problem: Problem, one: str, other: str) -> bool:
        if super().same(problem, one, other):
            return True
        first, second = (named_labels(problem.choices or (), text) for text in (one, other))
        return len(first) == 1 and first == second

    def extracted(self, problem: Problem, completion: str) -> str:
        return ", ".join(sorted(named_labels(problem.choices or (), completion)))
