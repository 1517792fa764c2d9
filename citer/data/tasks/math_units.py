"""Names of units: "dollars", "$" and "USD" are the same unit. Nothing is converted."""

import re

# Each line has a unit and its other names. Plurals need no entry.
NAMES = """
% percent pct
$ dollar usd
€ euro eur
£ pound gbp lb
¥ yen jpy
₹ rupee rs inr
mm millimeter millimetre
cm centimeter centimetre
m meter metre
km kilometer kilometre
in inch
ft foot feet '
yd yard
mi mile
mg milligram
g gram gm
kg kilogram kilo
oz ounce
ml milliliter millilitre
l liter litre
gal gallon
ms millisecond
s second sec
min minute
h hour hr
wk week
yr year
square sq
cubic cu
am
pm
per
"""
SPEEDS = {"mph": "mi per h", "kph": "km per h", "kmh": "km per h"}
FILLERS = frozenset(("a", "an", "of", "the", "us"))
# Words that turn a number into another number.
NO_UNIT = re.compile(
    r"and|arc\w+|at|cos|cot|csc|exp|gcd|lcm|ln|log|max|minus|mod|nor|not|or|over"
    r"|plus|sin|sqrt|tan|times"
)
# A power must follow a unit: 3 m^2 is an area, but 3^2 is 9.
UNIT_TEXT = re.compile(r"(?:[a-z'%$€£¥₹ -]|(?:(?<=[a-z])|(?<=[a-z] ))\^[23](?!\d))*")
WORD = re.compile(r"[a-z']+|[%$€£¥₹]")
POWER = re.compile(r"([a-z]+) ?\^([23])")
POWERS = {"2": "square", "3": "cubic"}


def unit_of(text: str) -> tuple[str, ...] | None:
    """Return the unit names in " cm^2", " dollars per hour" or ""; None if the text is no unit."""
    text = re.sub(r"[{}.]", "", text.lower()).replace("per cent", "%").replace("/", " per ")
    if not UNIT_TEXT.fullmatch(text):
        return None
    attached = bool(WORD.match(text))
    text = POWER.sub(lambda match: f"{POWERS[match[2]]} {match[1]}", text)
    words = [SPEEDS.get(word, word) for word in WORD.findall(text)]
    names = [word for word in " ".join(words).split() if word not in FILLERS]
    if any(NO_UNIT.fullmatch(name) or not (_known(name) or len(name) > 2) for name in names):
        return None
    if bool(text.strip()) != bool(names):
        return None
    if attached and not _known(names[0]):  # 12x is a product, 12cm is a length
        return None
    return tuple(_known(name) or _stem(name) for name in names)


def _known(word: str) -> str | None:
    return CANONICAL.get(word) or CANONICAL.get(_stem(word))


def _stem(word: str) -> str:
    """Strip trailing e and s; only equality of stems counts."""
    stem = word.rstrip("es") or word
    return stem[:-1] + "i" if stem.endswith("y") else stem


UNITS = {word: line.split()[0] for line in NAMES.strip().splitlines() for word in line.split()}
CANONICAL = {_stem(word): unit for word, unit in UNITS.items()} | UNITS
