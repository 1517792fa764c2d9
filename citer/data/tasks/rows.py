"""Raw rows: their formats, checked fields, and the error of a row that cannot be used."""

import ast
import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Literal, NamedTuple
from unicodedata import category, is_normalized

from citer.errors import InputError, shown

Row = dict[str, Any]

# reference: training rows; answer: rows to grade; question: rows to answer only.
Requires = Literal["reference", "answer", "question"]

HALF = re.compile(r"[\ud800-\udfff]")  # half of a surrogate pair: \ud83d alone in JSON
MARKS = "Mn" * 101  # of `category`; real text has few in a row
UNESCAPED = {"\b": ("backspace", "b"), "\f": ("form feed", "f")}


class RowError(InputError):
    """A row that cannot be used: the field, its value, what was expected."""

    def __init__(self, field: str, found: str, expected: str, where: str = "") -> None:
        place = f"{where}: {field}" if where else field
        super().__init__(f"{place}: {found}; expected {expected}")
        self.field, self.found, self.expected = field, found, expected

    def at(self, where: str) -> "RowError":
        """Return the same error with the file and line of the row."""
        return RowError(self.field, self.found, self.expected, where)


class Format(NamedTuple):
    """A shape of raw rows, such as that of a published benchmark.

    `signs` says by which fields it is recognised, and `fits` decides it. `rewrite` makes the row of
    the task, and raises RowError. `fields` maps a field of that row to the raw one, for messages.
    """

    name: str
    signs: str
    fits: Callable[[Row], bool]
    rewrite: Callable[[Row], Row] = lambda row: row
    fields: Mapping[str, str] = {}


def given(row: Row, *fields: str) -> bool:
    """Return whether a row has each of the fields, neither null nor empty."""
    return all(row.get(field) not in (None, "") for field in fields)


def text(row: Row, field: str, expected: str) -> str:
    """Return a field's text without the white space around it. Raises RowError."""
    value = row.get(field)
    if value is None:
        raise RowError(field, "missing", expected)
    if not isinstance(value, str) or not value.strip():
        raise RowError(field, shown(value), f"a text: {expected}")
    return clean(field, value)


def text_if(row: Row, field: str, expected: str) -> str | None:
    """Return a field's text, or None if it is absent, null or empty."""
    return text(row, field, expected) if given(row, field) else None


def as_text(value: Any) -> Any:
    """Return a number, no truth, as the text of an answer, and any other value as it is."""
    if type(value) not in (int, float) or not abs(value) < 1e300:  # nan is not
        return value
    return str(int(value) if value == int(value) else value)


def clean(field: str, value: str) -> str:
    """Strip white space. Raises RowError for damaged escapes, half characters, heaps of accents."""
    for character, (name, letter) in UNESCAPED.items():
        if match := re.search(character + r"\w*", value):
            found = f"a {name} before {match.group()[1:]!r}: its backslash was not escaped in JSON"
            raise RowError(field, found, f"'\\\\{letter}{match.group()[1:]}'")
    if "\0" in value:
        raise RowError(field, f"a NUL character at {value.index(chr(0))}", "text")
    if match := HALF.search(value):
        raise RowError(field, f"{match.group()!r}, half a character", "whole Unicode text")
    # To put a heap in its normal order takes the square of its size, and holds up all threads.
    ordered = is_normalized("NFC", value)  # quick
    if not ordered and MARKS in "".join(map(category, value)).replace("Mc", "Mn"):
        raise RowError(field, "over 100 accents in a row", "text")
    return value.strip()


def nested(value: Any) -> Any:
    """Return the list or struct that a text holds as JSON, or as Python writes it.

    A value that is no such text is returned as it is. Nothing in a text is executed.
    """
    if not isinstance(value, str):
        return value
    for read in (json.loads, ast.literal_eval):
        with suppress(ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            return read(value)
    return value
