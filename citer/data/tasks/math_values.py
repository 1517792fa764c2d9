"""Compare two answers by value."""

import re
import threading
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from citer.data.tasks.math_quantities import WORDS, quantity, same_quantity, same_unit, tidy

LONGEST = 400  # characters; a longer answer is compared as a string alone
MOST = 20  # values in a list that may be given in any order
TIMEOUT_SECONDS = 5

# A comma between digits separates values only if the list also has commas with a space.
TOKEN = re.compile(r"\\?[{}]|[()\[\]]|;|,(?!\d{3}(?!\d))|(?P<dense>,)|,? (?:and|or) ")
BASED = re.compile(r"\d[\da-z]* ?_ ?\w+")
RATIO = re.compile(r"(?<=[\d})]) ?: ?(?=[\d\\({])")  # or a time of day
COMPOUND = re.compile(r"(?<=[a-z.])(?:,? and|,)? ?(?=\d)")  # 3 hours and 20 minutes
WORD = re.compile(r"(?=.*[^\W\d_]{3}|no$)(?:[^\W\d_]|[' -])+")
NONE = re.compile(r"(?:there (?:is|are) )?(no .+?)s?")
BRACKETS = re.compile(r"(?P<opening>\\\{|[(\[])(?P<inner>.+)(?P<closing>\\\}|[)\]])")

# Of expressions: math-verify ignores case, primes, transposes and the order of factors, reads `I`
# as i, and rounds decimals.
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


class Listed(NamedTuple):
    """The values of a list; `brackets` is "" if the list has no brackets."""

    brackets: str
    values: tuple[str, ...]


def same_value(answer: str, given: str) -> bool:
    """Return whether two answers, in LaTeX or plain text, have the same value (see `Math`).

    math-verify's timeouts are signals, which only the main thread gets. On other threads, only
    LONGEST limits the time.
    """
    if answer == given:
        return True
    return max(len(answer), len(given)) <= LONGEST and _same(tidy(answer), tidy(given))


@lru_cache(maxsize=1 << 16)
def _same(answer: str, given: str) -> bool:
    quantities = quantity(answer), quantity(given)
    if all(one.value is not None for one in quantities):
        return same_quantity(*quantities)
    lists = _listed(answer), _listed(given)
    if all(len(one.values) > 1 for one in lists):
        return _same_list(*lists)
    if any(len(one.values) > 1 for one in lists) and "\\pm" not in answer + given:
        # The other side may describe an interval or a set in brackets, but not by a number.
        numbers = [one for one in quantities if one.value is not None]
        if numbers or not any(one.brackets for one in lists):
            return False
    ratios = RATIO.split(answer), RATIO.split(given)
    if any(len(ratio) > 1 for ratio in ratios):
        return len(ratios[0]) == len(ratios[1]) and all(map(_same, *ratios))
    texts = [
        re.sub(r"[{}]", "", WORDS.sub(r"\1", text)).strip().lower() for text in (answer, given)
    ]
    if any(map(BASED.fullmatch, texts)) or all(map(WORD.fullmatch, texts)):
        none = [NONE.fullmatch(text) for text in texts]
        return texts[0] == texts[1] or bool(none[0] and none[1] and none[0][1] == none[1][1])
    bodies = [one.body for one in quantities]
    return same_unit(*quantities) and not _reordered(*bodies) and _verified(*bodies)


def _listed(text: str) -> Listed:
    """Return the values of "1, 2" or "(1, 2)". A text that is no list is a single value."""
    match = BRACKETS.fullmatch(text)
    if match and (inner := _split(match["inner"])):
        return Listed(match["opening"] + match["closing"], inner)
    parts = COMPOUND.split(" ".join(WORDS.sub(r" \1 ", text).split()))
    if len(parts) > 1 and all(quantity(part).unit for part in parts):
        return Listed("", tuple(parts))
    return Listed("", _split(text) or (text,))


def _split(text: str) -> tuple[str, ...]:
    """Split at the outermost commas. Return () if a closing bracket has no opening one."""
    values, start, depth = [], 0, 0
    for token in TOKEN.finditer(text):
        depth += 1 if token.group()[-1] in "([{" else -1 if token.group()[-1] in ")]}" else 0
        if depth < 0:
            return ()
        if depth == 0 and token.group()[-1] in ",; " and not (token["dense"] and ", " in text):
            values.append(text[start : token.start()].strip())
            start = token.end()
    return (*values, text[start:].strip())


def _same_list(answer: Listed, given: Listed) -> bool:
    brackets = {answer.brackets, given.brackets} - {""}
    if len(brackets) > 1 or len(answer.values) != len(given.values):
        return False
    if brackets - {"\\{\\}"} or len(answer.values) > MOST:
        return all(map(_same, answer.values, given.values))
    left = list(given.values)
    for value in answer.values:
        index = next((i for i, other in enumerate(left) if _same(value, other)), None)
        if index is None:
            return False
        del left[index]
    return True


def _verified(answer: str, given: str) -> bool:
    import math_verify  # it takes half a second, and every command imports this module

    latex = math_verify.LatexExtractionConfig()  # which takes the h of r^2 h for hours
    kept = replace(latex, normalization_config=replace(latex.normalization_config, units=False))
    on_main = threading.current_thread() is threading.main_thread()
    seconds = TIMEOUT_SECONDS if on_main else None
    gold, target = (
        math_verify.parse(f"\\boxed{{{text}}}", (kept,), parsing_timeout=seconds)
        for text in _readable(answer, given)
    )
    return math_verify.verify(gold, target, allow_set_relation_comp=True, timeout_seconds=seconds)


def _reordered(one: str, other: str) -> bool:
    """Return whether capitals that stand side by side, as in AB, have another order: BA."""
    plain = (re.sub(r"\\[A-Za-z]+", " ", text) for text in (one, other))
    first, second = (
        {tuple(FACTOR.findall(factors)) for factors in PRODUCT.findall(text)} for text in plain
    )
    return any(a != b and sorted(a) == sorted(b) for a in first ^ second for b in first | second)


def _readable(one: str, other: str) -> list[str]:
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
