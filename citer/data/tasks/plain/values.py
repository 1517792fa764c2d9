"""Compare a completion with an answer: as text, by words, as JSON.

Every step takes time linear in the completion.
"""

import json
import re
from collections.abc import Iterable
from typing import Any, NoReturn

# A number with a point or commas is one word.
WORD = re.compile(r"\d++(?:[.,]\d++)+|\w++|[^\w\s]")
FENCE = re.compile(r"```")
OPENING = re.compile(r"[{\[]")
DEEPEST = 100  # levels of brackets; deeper values are not read, since `same` calls itself per level
TRIES = 200  # brackets that open no value; after them, the rest of a completion is not read


def is_same(answer: str, completion: str) -> bool:
    """Return whether two texts are equal, ignoring case, white space and a final full stop."""
    return _tidy(answer) == _tidy(completion)


def _tidy(text: str) -> str:
    return " ".join(text.casefold().split()).removesuffix(".").rstrip()


def contains(answer: str, completion: str) -> bool:
    """Return whether the completion has the words of a line of `answer`, in this order."""
    words = _words(completion)
    return any(_words(line) in words for line in answer.split("\n"))


def _words(text: str) -> str:
    return f" {' '.join(WORD.findall(text.casefold()))} "


def json_share(answer: str, completion: str) -> float:
    """Return which share of the JSON `answer` the last JSON value of a completion has."""
    expected, found = loads(answer), last_values(completion)
    if not found:
        return 0.0
    given = found[-1]
    if isinstance(expected, dict) and isinstance(given, dict) and (expected or given):
        right = sum(key in given and same(value, given[key]) for key, value in expected.items())
        return right / len(expected.keys() | given.keys())
    return float(same(expected, given))


def same_json(one: str, other: str) -> bool:
    """Return whether the last JSON values of two completions are equal."""
    first, second = last_values(one), last_values(other)
    return bool(first and second) and same(first[-1], second[-1])


def last_values(completion: str) -> list[Any]:
    """Return the JSON values of the last fence, or of the completion; [] if there are none."""
    *_, fenced = ["", *_fenced(completion)]
    return _values(fenced) or _values(completion)


def _fenced(completion: str) -> list[str]:
    """Return the content of each closed fence, without the word `json` after the opening."""
    parts = FENCE.split(completion)
    return [part.strip().removeprefix("json") for part in parts[1:-1:2]]


def _values(text: str) -> list[Any]:
    try:
        return [loads(text)]
    except (ValueError, RecursionError):
        return _objects_and_arrays(text)


def _objects_and_arrays(text: str) -> list[Any]:
    """Return the outermost objects and arrays of a text, in order."""
    found, tries, start = [], 0, 0
    while tries < TRIES and (opening := OPENING.search(text, start)):
        try:
            value, start = DECODER.raw_decode(text, opening.start())
            found.append(value)
        except (ValueError, RecursionError):
            start, tries = opening.end(), tries + 1
    return found


def same(one: Any, other: Any) -> bool:
    """Return whether two JSON values are equal: numbers by value, but true is not 1."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)


def loads(text: str) -> Any:
    """Parse JSON. Raises ValueError, and RecursionError beyond `DEEPEST` levels of brackets."""
    return DECODER.decode(text)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")


class Decoder(json.JSONDecoder):
    def raw_decode(self, s: str, idx: int = 0) -> tuple[Any, int]:
        value, end = super().raw_decode(s, idx)
        level, depth = [value], 0
        while nested := [each for each in level if isinstance(each, dict | list)]:
            level = [part for each in nested for part in _parts(each)]
            depth += 1
            if depth > DEEPEST:
                raise RecursionError
        return value, end


def _parts(nested: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return nested.values() if isinstance(nested, dict) else nested


DECODER = Decoder(parse_constant=_refuse)
