"""Compare a completion with an answer: as text, by words, as JSON.

Every step takes time linear in the completion.
"""

import json
import re
import unicodedata
from typing import Any

# Chinese, Japanese and Korean words stand without spaces: each of their characters is a word here.
EASTERN = re.compile("[\u3005-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]")
# A number is one word with its minus, fraction or time; so are "C++" and "can't".
WORD = re.compile(
    r"""(?:(?<![\w)\]}])(?:-[$€£¥]?)?\.?)?\d++(?:[.,:/^]\d++)*+\w*
     |\w++(?:'t\b|\+\+|\#(?!\w))?|[^\w\s]""",
    re.VERBOSE,
)
# Quotes, minus, hyphens and dashes.
SIGNS = str.maketrans("\u2018\u2019\u201c\u201d\u2212\u2010\u2011\u2012\u2013", "''\"\"-----")
# Signs of bold and italic type, but neither 2*3, 2 * 3 nor snake_case.
TYPE = re.compile(
    r"(?<![\w*])\*++(?=\S)|(?<=[^\s*])\*++(?!\w)"
    r"|(?<!\w)_++(?=[^\W_])|(?<=[^\W_])_++(?!\w)"
)
THOUSANDS = re.compile(r"(?<![\w.,])[1-9]\d{0,2}(?:,\d{3})++(?!,?\d)")
FENCE = re.compile(r"```json\b(.*?)(?:```|\Z)", re.DOTALL | re.IGNORECASE)
BRACKET = re.compile(r"[{\[]")
TRIES = 200  # brackets that open no value; a completion with more is not read


def is_same(answer: str, completion: str) -> bool:
    """Return whether two texts are equal, but for case, space, quotes, dashes and a full stop."""
    return _tidy(answer) == _tidy(completion)


def _tidy(text: str) -> str:
    return " ".join(_plain(text).split()).removesuffix(".").rstrip()


def _plain(text: str) -> str:
    """Write one character for accents, quotes and dashes that look alike."""
    return unicodedata.normalize("NFC", text.translate(SIGNS).casefold())


def contains(answer: str, completion: str) -> bool:
    """Return whether the completion has the words of a line of `answer`, in this order."""
    words = _words(completion)
    return any(_words(line) in words for line in answer.split("\n"))


def _words(text: str) -> str:
    text = THOUSANDS.sub(lambda match: match[0].replace(",", ""), TYPE.sub("", _plain(text)))
    spaced = EASTERN.sub(r" \g<0> ", text)
    return f" {' '.join(WORD.findall(spaced))} "


def json_share(answer: str, completion: str) -> float:
    """Return which share of the JSON `answer` the last JSON value of a completion has."""
    expected = loads(answer)
    for given in last_value(completion):
        if isinstance(expected, dict) and isinstance(given, dict) and (expected or given):
            right = sum(key in given and same(value, given[key]) for key, value in expected.items())
            return right / len(expected.keys() | given.keys())
        return float(same(expected, given))
    return 0.0


def same_json(one: str, other: str) -> bool:
    first, second = last_value(one), last_value(other)
    return bool(first and second) and same(first[0], second[0])


def last_value(completion: str) -> list[Any]:
    """Return the value of the last JSON fence, or else of the completion; [] if there is none."""
    fences = FENCE.findall(completion)
    text = fences[-1] if fences else completion
    return _whole(text) or _last_in(text)


def _whole(text: str) -> list[Any]:
    try:
        return [loads(text)]
    except (ValueError, RecursionError):
        return []


def _last_in(text: str) -> list[Any]:
    """Return the last outermost object or array of a text; [] if a broken one follows it."""
    found: list[Any] = []
    end = tries = 0
    while (bracket := BRACKET.search(text, end)) and tries < TRIES:
        try:
            value, end = DECODER.raw_decode(text, bracket.start())
            found = [value]
        except (ValueError, RecursionError):
            found, tries, end = [], tries + 1, bracket.end()
    return found if tries < TRIES else []


def same(one: Any, other: Any) -> bool:
    """Return whether two JSON values are equal: numbers by value, but true is not 1."""
    try:
        first, second = (json.dumps(value, sort_keys=True) for value in (one, other))
    except RecursionError:  # thousands of levels of brackets
        return False
    return first == second


def loads(text: str) -> Any:
    """Parse JSON. Raises ValueError, and RecursionError for very many levels of brackets."""
    return DECODER.decode(unicodedata.normalize("NFC", text).strip())


def _number(text: str) -> float:
    value = float(text)
    return int(value) if value.is_integer() else value


DECODER = json.JSONDecoder(parse_float=_number)  # 1.0 is 1
