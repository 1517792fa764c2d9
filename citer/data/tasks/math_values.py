"""Compare two answers by value: as plain numbers, as words, or by math-verify."""

import re
import threading
import unicodedata
from collections import deque
from fractions import Fraction
from functools import lru_cache
from math import prod
from typing import NamedTuple

LONGEST = 400  # characters; a longer answer is compared as a string alone
TIMEOUT_SECONDS = 5

SYMBOLS = str.maketrans(
    {
        "\u2212": "-",  # minus sign
        "\u2013": "-",  # en dash
        "\u2019": "'",
        "\u221e": "\\infty ",
        "\u221a": "\\sqrt ",
        "\u00d7": "\\times ",
        "\u00b0": "^\\circ ",
        "\u00b2": "^2",
        "\u00b3": "^3",
    }
)
# LaTeX that changes the look alone.
SPELLINGS = [
    (re.compile(pattern), by)
    for pattern, by in (
        (r"(?<!\\)\\!", ""),
        (r"(?<=\d)(?:\{,\}|\\,)(?=\d{3})", ","),
        (r"(?<!\\)\\[,;: ]|~", " "),
        (r"\\([$%])", r"\1"),
        (r"\\[dt]frac", r"\\frac"),
        (r"\\(?:mathrm|mbox|text(?:bf|rm|it)) ?\{", r"\\text{"),
    )
]
FRAMES = (("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"), ("\\boxed{", "}"))
QUOTIENT = re.compile(r"\\frac ?(?:\{(-?\d+)\}|(\d)) ?(?:\{(\d+)\}|(\d))")
# 2.5\times 10^{3}, but neither 10^23, which LaTeX sets as 10^2 3, nor 10^{2}3.
POWER = re.compile(
    r"(?<=\d) {0,2}(?:\\times|\\cdot|[*\u00b7\u22c5]) {0,2}10 ?\^ ?"
    r"(?:\{ ?([+-]?\d{1,3}) ?\}|(-?\d))(?!\d)"
)
# Groups of digits with spaces, as in 12 000; 100 200 may be two numbers, but 000 is none.
GROUPS = re.compile(r"(?<![\w.,/^])(?<!\d )\d{1,3}(?: \d{3})* 0\d\d(?: \d{3})*(?!\d)")
CURRENCY = "[$€£¥]"
SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9}
SCALES |= {"trillion": 10**12, "dozen": 12}
SCALE = rf"(?:{'|'.join(SCALES)})"
# Linear in the text: a run of digits is matched as a whole or not at all.
NUMBER = re.compile(
    rf"""(?P<sign>(?<![\w)\]}}.])(?:[-+]{CURRENCY}?|{CURRENCY}-))?
    (?<![a-z_\d])
    (?:(?:(?P<whole>\d{{1,9}})\ )?(?P<above>\d++)\ ?/\ ?(?P<below>\d++)
      |(?P<decimal>
        (?:(?:\d{{1,3}}(?:,\d{{3}})++(?!\d)|\d++)(?:\.\d++)?|(?<![.\w])\.\d++)
        (?:e[+-]?\d{{1,3}})?))
    (?:(?P<percent>\ ?(?:%|per\ ?cent\b))
      |\ (?P<scale>{SCALE}(?:\ {SCALE})*)\b)?""",
    re.VERBOSE | re.IGNORECASE,
)
RAISED = r"(?: ?\^ ?\{?[23]\}?)?"
SHORT = rf"(?:[kcm]?m|[km]?g|m?[lL]|h|s|in|ft|yd|mi|lb|oz){RAISED}"
# Words that make another number, and names of functions, are no units.
UNIT = re.compile(
    rf"(?:(?!.*\b(?:and|or|not|plus|minus|times|over|mod|squared|cubed|factorial|sin|cos|tan|log"
    rf"|{SCALE}|point|negative|half|halves|thirds|(?:four|fif|six|seven|eigh|nin|hundred)ths|tenths?)\b)"
    rf"(?: ?{CURRENCY}|(?-i:(?P<short> ?\^\\circ ?[CF]| {SHORT}(?:/{SHORT})?))"
    rf"| [a-z]{{3}}[a-z ]*){RAISED})?",
    re.IGNORECASE,
)
BEFORE = re.compile(rf"\A(?:{CURRENCY}+|(?:USD|EUR|GBP) ?(?=\d))")
TEXT = re.compile(r"\\text ?\{([^{}]*)\}")
# Times, ratios and numbers with a base, which math-verify reads as quotients and products.
STRUCTURED = re.compile(r"\d\}? ?[:_]")
WORDS = re.compile(r"(?=.*[^\W\d_]{3}|no$)(?:[^\W\d_]|[' -])+")


class Number(NamedTuple):
    value: Fraction
    percent: bool
    unit: str  # of one or two letters, such as km/h


def same_value(answer: str, given: str) -> bool:
    """Return whether two answers, in LaTeX or plain text, have the same value (see `Math`).

    Only the main thread gets the signals by which math-verify ends after TIMEOUT_SECONDS.
    """
    if answer == given:
        return True
    return max(len(answer), len(given)) <= LONGEST and _same(_tidy(answer), _tidy(given))


@lru_cache(maxsize=1 << 16)
def _same(answer: str, given: str) -> bool:
    if answer == given:
        return True
    one, other = _number(answer), _number(given)
    if one and other and not (one.unit and other.unit and one.unit != other.unit):
        return _same_number(one, other)
    texts = [TEXT.sub(r"\1", text).strip().casefold() for text in (answer, given)]
    if all(map(WORDS.fullmatch, texts)):
        return texts[0] == texts[1]
    if any(map(STRUCTURED.search, texts)):
        first, second = (re.sub("[{} ]", "", text) for text in texts)
        return first == second
    return _verified(answer, given)


def last_number(text: str) -> str | None:
    """Return the last number of a text, with its sign, scale and percent sign; None without one."""
    joined = GROUPS.sub(lambda match: match[0].replace(" ", ""), text.translate(SYMBOLS))
    last = deque(NUMBER.finditer(_plain(joined)), maxlen=1)
    return last[0].group() if last else None


def _tidy(text: str) -> str:
    """Remove formatting: spacing, `$...$`, bold type, quotes, a final full stop."""
    text = " ".join(unicodedata.normalize("NFC", text).translate(SYMBOLS).split()).strip('*"` ')
    for opening, closing in FRAMES:
        if len(text) > 2 and text.startswith(opening) and text.endswith(closing):
            text = text[len(opening) : -len(closing)]
    return " ".join(_spelled(text).split()).rstrip(". ")


def _spelled(text: str) -> str:
    for pattern, by in SPELLINGS:
        text = pattern.sub(by, text)
    return text


def _plain(text: str) -> str:
    r"""Write `2\frac{1}{2}` as 2 1/2, and `2\times 10^{3}` as 2e3."""
    return QUOTIENT.sub(r" \1\2/\3\4", POWER.sub(r"e\1\2", _spelled(text)))


def _number(text: str) -> Number | None:
    """Read a tidy text as a plain number, with its unit if that is a short one."""
    plain = BEFORE.sub("", " ".join(_plain(TEXT.sub(r" \1 ", text)).split()))
    match = NUMBER.match(plain)
    if not match or not (unit := UNIT.fullmatch(plain, match.end())):
        return None
    if match["decimal"]:
        value = Fraction(match["decimal"].replace(",", ""))
    elif int(match["below"]):
        value = int(match["whole"] or 0) + Fraction(int(match["above"]), int(match["below"]))
    else:
        return None
    value *= prod(SCALES[scale] for scale in (match["scale"] or "").lower().split())
    value = -value if "-" in (match["sign"] or "") else value
    return Number(value, bool(match["percent"]), re.sub("[{} ]", "", unit["short"] or ""))


def _same_number(one: Number, other: Number) -> bool:
    """Return whether two numbers are equal. 50% equals both 50 and 0.5."""
    if one.value == other.value:
        return True
    share, plain = (one, other) if one.percent else (other, one)
    return share.percent and not plain.percent and share.value == plain.value * 100


def _verified(answer: str, given: str) -> bool:
    import math_verify  # it takes half a second, and every command imports this module

    on_main = threading.current_thread() is threading.main_thread()
    seconds = TIMEOUT_SECONDS if on_main else None
    latex = (math_verify.LatexExtractionConfig(),)  # alone: others find a number in any text
    gold, target = (
        math_verify.parse(f"\\boxed{{{text}}}", latex, parsing_timeout=seconds)
        for text in (answer, given)
    )
    return math_verify.verify(gold, target, timeout_seconds=seconds)
