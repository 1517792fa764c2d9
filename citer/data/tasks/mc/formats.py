"""Formats of multiple-choice rows: the task's own, CommonsenseQA's, ARC's and MMLU's."""

from typing import Any

from citer.data.tasks.formats import Format, Row, given
from citer.data.tasks.mc.cells import nested
from citer.data.tasks.rows import Requires, RowError
from citer.errors import shown

LETTERS = "ABCDE"


def _own(row: Row, requires: Requires) -> Row:
    return row | {"choices": nested(row.get("choices"))}


def _keyed(row: Row, requires: Requires) -> Row:
    """Make the reference of a training row from the label of the right option."""
    key = row.get("answerKey")
    if requires != "answer" and not given(row, "cot") and isinstance(key, str) and key.strip():
        row = row | {"cot": f"The answer is ({key.strip()})."}
    return _own(row, requires)


def _mmlu(row: Row, requires: Requires) -> Row:
    """Give the options letters. The answer is an index from 0 on, or already a letter."""
    texts = nested(row.get("choices"))
    if not _are_texts(texts) or not 2 <= len(texts) <= len(LETTERS):
        raise RowError("choices", shown(texts), f"a list of 2 to {len(LETTERS)} texts")
    labels = list(LETTERS[: len(texts)])
    row = row | {"choices": {"text": texts, "label": labels}, "answerKey": None}
    if given(row, "answer"):
        row["answerKey"] = _letter(row["answer"], labels)
    return _keyed(row, requires)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _letter(answer: Any, labels: list[str]) -> str:
    if (given_as := str(answer)) in labels:
        return given_as
    indices = [str(index) for index in range(len(labels))]
    if given_as in indices:
        return labels[indices.index(given_as)]
    expected = f"an index 0-{len(labels) - 1} or a letter {labels[0]}-{labels[-1]}"
    raise RowError("answer", shown(answer), expected)


FORMATS = (
    Format(
        "mmlu",
        "`question` and `choices` as a list",
        lambda row: given(row, "question") and isinstance(nested(row.get("choices")), list),
        _mmlu,
        {"cot": "answer", "answerKey": "answer"},
    ),
    Format(
        "commonsenseqa",
        "`question_concept` and `choices`",
        lambda row: given(row, "question_concept", "choices"),
        _keyed,
        {"cot": "answerKey"},
    ),
    Format(
        "arc",
        "`id` and `choices`, without `cot`",
        lambda row: given(row, "id", "choices") and not given(row, "cot"),
        _keyed,
        {"cot": "answerKey"},
    ),
    Format("mc", "`question`", lambda row: given(row, "question"), _own),
)
