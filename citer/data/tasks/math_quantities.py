r"""Parse quantities in plain text and LaTeX: "51 dollars", "2 1/2", "1.5e3", "5\text{ cm}"."""

import re
import unicodedata
from fractions import Fraction
from typing import NamedTuple

from citer.data.tasks.math_units import unit_of

SYMBOLS = str.maketrans(
    {
        "\u2212": "-",  # minus sign
        "\u2013": "-",  # en dash
        "\u2019": "'",
        "\u2205": "\\emptyset ",
        "\u00d7": "\\times ",
        "\u22c5": "\\cdot ",
        "\u03c0": "\\pi ",
        "\u221e": "\\infty ",
        "\u221a": "\\sqrt ",
        "\u00b0": "^\\circ ",
        "\u00b2": "^2",
        "\u00b3": "^3",
        "\u00bd": " 1/2",
        "\u00bc": " 1/4",
        "\u00be": " 3/4",
    }
)
REWRITES = [
    (re.compile(pattern), by)
    for pattern, by in (
        (r"(?<!\\)\\!", ""),
        (r"(?<!\\)\\[,;: ]|~", " "),
        (r"\{,\}", ","),
        (r"\\([$%])", r"\1"),
        (r"\\(?:left|right)(?![a-z])", ""),
        (r"\\[dtc]frac", r"\\frac"),
        (r"\\text ?\{ ?,? ?(and|or) ?\}", r" \1 "),
        (r"\\varnothing(?![a-z])", r"\\emptyset"),
        (r"\\mathrm ?\{([ei])\}", r"\1"),
    )
]
REPEATING = re.compile(r"(\d*)\.(\d*)\\(?:overline|bar|dot) ?(?:\{(\d+)\}|(\d))(?!\d|\\dot)")
LEAD = re.compile(r"(?:so|thus|therefore|hence)?,? ?(?:the )?(?:final )?answer(?: is|:)[ :]*", re.I)
WORDS = re.compile(r"\\(?:text|math)?(?:bf|rm|it|mbox|text)\s?\{([^{}]*)\}")
DEGREE = re.compile(
    r"(?:\^ ?\{? ?\\circ ?\}?|\\degree|\bdegrees?) ?(celsius|fahrenheit|[cf])?\b", re.I
)
DEGREES = {"c": " celsius ", "f": " fahrenheit ", "": " degree "}
QUOTIENT = re.compile(r"\\frac ?(?:\{(-?\d+)\}|(\d)) ?(?:\{(\d+)\}|(\d))")
COMMAS = r"(?:\d{1,3}(?:,\d{3})+|\d{1,40})"
NUMBER = re.compile(
    rf"""(?P<sign>[+-]?)\ ?(?P<currency>(?:us)?\$|[€£¥₹]|(?:usd|eur|gbp|rs\.?)\b)?
    \ ?(?P<inner>[+-]?)\ ?
    (?:(?:(?P<whole>\d{{1,40}})\ )?(?P<above>{COMMAS})\ ?/\ ?(?P<below>{COMMAS})
      |(?P<decimal>(?:\d{{1,3}}(?:\ \d{{3}})+|{COMMAS})?(?:\.\d{{1,40}})?(?<=\d))
       (?:(?:e|\ ?(?:\\times|\\cdot|[*x])\ ?10\ ?\^)\ ?\{{?(?P<power>[+-]?\d{{1,3}})\}}?)?
    )(?![\d_,.])(?P<unit>.*)""",
    re.VERBOSE | re.IGNORECASE,
)
SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "dozen": 12}
SYMBOLIC = re.compile(
    r"(?P<body>.*\S)(?P<unit>(?:\\(?:text|mathrm|mbox) ?\{[^{}]*\}|(?<=[\d})]) [a-z][a-z ]+)"
    r"(?: ?\^ ?\{?[23]\}?)?)"
)
PERCENT = ("%",)


class Quantity(NamedTuple):
    """An exact `value` with a unit. `value` is None if `body`, the remaining text, is no number."""

    value: Fraction | None
    unit: tuple[str, ...]
    body: str


def tidy(text: str) -> str:
    """Remove formatting: spacing, `$...$`, bold type, a leading "the answer is"."""
    text = unicodedata.normalize("NFC", text).translate(SYMBOLS)
    text = " ".join(text.split()).strip('*"` ')
    for opening, closing in (("$", "$"), ("\\(", "\\)"), ("\\[", "\\]")):
        if len(text) > 2 and text.startswith(opening) and text.endswith(closing):
            text = text[len(opening) : -len(closing)]
    for pattern, by in REWRITES:
        text = pattern.sub(by, text)
    text = REPEATING.sub(_repeating, text)
    return LEAD.sub("", " ".join(text.split()), count=1).rstrip(". ")


def _repeating(match: re.Match[str]) -> str:
    r"""Write 0.1\overline{6} as a fraction."""
    whole, fixed, period = match[1], match[2], match[3] or match[4]
    value = Fraction(int(whole + fixed + period) - int(whole + fixed or 0), 10 ** len(period) - 1)
    value /= 10 ** len(fixed)
    return rf"\frac{{{value.numerator}}}{{{value.denominator}}}"


def quantity(text: str) -> Quantity:
    """Parse the value and unit of a tidy text."""
    plain = QUOTIENT.sub(r" \1\2/\3\4", WORDS.sub(r" \1 ", text))
    plain = DEGREE.sub(lambda match: DEGREES[(match[1] or "")[:1].lower()], plain)
    match = NUMBER.fullmatch(" ".join(plain.split()))
    if number := match and _number(match):
        return number
    match = SYMBOLIC.fullmatch(text)
    unit = match and unit_of(WORDS.sub(r" \1 ", match["unit"]))
    return Quantity(None, unit, match["body"]) if match and unit else Quantity(None, (), text)


def _number(match: re.Match[str]) -> Quantity | None:
    unit, value = unit_of(match["unit"]), _value(match)
    if unit is None or value is None:
        return None
    while unit and (scale := SCALES.get(unit[0])):
        value, unit = value * scale, unit[1:]
    if match["currency"]:
        currency = unit_of(match["currency"].lower().removeprefix("us")) or ()
        unit = unit if unit[:1] == currency else currency + unit
    return Quantity(value, unit, str(value))


def _value(match: re.Match[str]) -> Fraction | None:
    sign = -1 if (match["sign"] == "-") != (match["inner"] == "-") else 1
    plain = {name: re.sub("[, ]", "", text or "0") for name, text in match.groupdict().items()}
    if not match["below"]:
        return sign * Fraction(plain["decimal"]) * Fraction(10) ** int(plain["power"])
    if not int(plain["below"]):
        return None
    return sign * (int(plain["whole"]) + Fraction(int(plain["above"]), int(plain["below"])))


def same_unit(one: Quantity, other: Quantity) -> bool:
    """Return whether two units are the same. A missing unit equals any unit."""
    return not one.unit or not other.unit or one.unit == other.unit


def same_quantity(one: Quantity, other: Quantity) -> bool:
    """Return whether two numbers are the same. 50% equals both 50 and 0.5."""
    if one.value == other.value:
        return same_unit(one, other)
    return any(
        share.unit == PERCENT and not plain.unit and share.value == (plain.value or 0) * 100
        for share, plain in ((one, other), (other, one))
    )
