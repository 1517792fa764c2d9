"""Rows {"question", "choices": {"text", "label"}, "answerKey", "cot"}."""

from typing import Any

from citer.data.problems import Choice, Problem, problem_key
from citer.data.tasks.rows import Requires, RowError, clean, text, text_if
from citer.errors import shown

LABEL_SETS = ("ABCDE", "1234")


def problem(row: dict[str, Any], requires: Requires, source: str) -> Problem:
    """Turn a raw row into a problem. Raises RowError."""
    question = text(row, "question", "the question")
    choices = _choices(row.get("choices"))
    training, graded = requires == "reference", requires != "question"
    answer = text_if(row, "answerKey", "the right option's label", required=graded)
    reference = text_if(row, "cot", "a rationale in training files", required=training)
    labels = [choice.label for choice in choices]
    if answer is not None and answer not in labels:
        raise RowError("answerKey", repr(answer), f"one of {', '.join(labels)}")
    key = problem_key("mc", question, choices)
    return Problem(key, "mc", question, choices, reference, answer, source, split="")


def _choices(value: Any) -> tuple[Choice, ...]:
    if not isinstance(value, dict) or not all(_texts(value.get(key)) for key in ("text", "label")):
        raise RowError("choices", shown(value), '{"text": [texts], "label": [labels]}')
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
    return isinstance(value, list) and all(isinstance(v, str) and v.strip() for v in value)
