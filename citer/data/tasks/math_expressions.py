r"""Write expressions so that math-verify does not confuse what differs.

It ignores case, primes, transposes and the order of factors, reads `I` as i, and rounds decimals.
"""

import re

FUNCTION = re.compile(r"(?<![\\a-z])(?=(?:arc)?(?:sin|cos|tan|cot|sec|csc|ln|log|pi)\b)")
TRIG = re.compile(r"\\(?:sin|cos|tan|cot|sec|csc)(?![a-z])")
DEGREES = re.compile(r"(\d+(?:\.\d+)?|\\?[a-z]+) ?(?:\^ ?\{? ?\\circ ?\}?|\\degree)")
DECIMAL = re.compile(r"(?<![\w.^}])(\d*)\.(\d+)(?![\d.])")
TRANSPOSE = re.compile(r"\^ ?(?:T|\\top|\{ ?(?:T|\\top) ?\})(?![a-z])")
NAMED = r"\\(?:math\w+|hat|vec|bar|overline|bm) ?\{[^{}]*\}"
SYMBOL = re.compile(
    rf"{NAMED}|\\[a-z]+|[A-Za-z][a-z]{{2,}}"
    r"|(?P<capital>\\[A-Z][a-z]+|[A-Z])|(?P<i>i)(?P<power> ?\^)?"
)
SMALL = re.compile(rf"{NAMED}|(\\[a-z]+|[a-z])")
INDEX = re.compile(r"_ ?(?:i|\{[^{}]*\bi\b)")
LETTERS = "abcfghjklmnopqrstuvwxyz"  # neither e nor i nor d, which have a meaning
SCRIPT = r"(?: ?[_^] ?(?:\{[^{}]*\}|\w)|')*"
FACTOR = re.compile(rf"[A-Z]{SCRIPT}")
PRODUCT = re.compile(rf"(?:[A-Z]{SCRIPT} ?){{2,}}")


def reordered(one: str, other: str) -> bool:
    """Return whether capitals that stand side by side, as in AB, have another order: BA."""
    plain = (re.sub(r"\\[A-Za-z]+", " ", text) for text in (one, other))
    first, second = (
        {tuple(FACTOR.findall(factors)) for factors in PRODUCT.findall(text)} for text in plain
    )
    return any(a != b and sorted(a) == sorted(b) for a in first ^ second for b in first | second)


def readable(one: str, other: str) -> list[str]:
    """Return both expressions for math-verify.

    A capital whose small letter occurs, too, gets a letter of its own.
    """
    texts = [_exact(text) for text in (one, other)]
    small = {letter for text in texts for letter in SMALL.findall(text)} | {"i"}
    unused = iter(sorted(set(LETTERS) - small))
    renamed: dict[str, str] = {}
    imaginary = not any(map(INDEX.search, texts))

    def rename(symbol: re.Match[str]) -> str:
        name = symbol.group()
        if symbol["i"] and imaginary:
            return f"{{I}}{symbol['power']}" if symbol["power"] else "I"
        if symbol["capital"] and name.lower() in small:
            renamed[name] = renamed.get(name) or next(unused, name)
        return renamed.get(name, name)

    return [SYMBOL.sub(rename, text) for text in texts]


def _exact(text: str) -> str:
    """Write decimals as fractions, and degrees under a sine as radians."""
    text = FUNCTION.sub(r"\\", text)
    if TRIG.search(text):
        text = DEGREES.sub(r"(\1\\pi/180)", text)
    text = re.sub("'+", lambda primes: f"_{{{'9' * len(primes[0])}}}", text)
    return TRANSPOSE.sub(r"^{\\tau }", DECIMAL.sub(_fraction, text))


def _fraction(decimal: re.Match[str]) -> str:
    whole, digits = decimal.groups()
    return rf"\frac{{{int(whole + digits)}}}{{{10 ** len(digits)}}}"
