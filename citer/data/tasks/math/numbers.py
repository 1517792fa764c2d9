"""Read the last number of a text."""

import re
from collections import deque

# Linear in the text: a run of digits is matched as a whole or not at all.
NUMBER = re.compile(
    r"""(?:(?<![\w)\]}.])(?:[-+\u2212](?:\\?\$)?|\\?\$[-\u2212]))?
    (?<![a-z_\d])
    (?:\\[dt]?frac\{\d++\}\{\d++\}
      |(?:\d{1,9}\ )?\d++\ ?/\ ?\d++
      |(?<![.\w])\.\d++
      |(?:\d{1,3}(?:\{?,\}?\d{3})++(?!\d)|\d++)(?:\.\d++)?(?:e[+-]?\d{1,3})?)
    (?:\\?%|\ (?:hundred|thousand|million|billion)\b)?""",
    re.VERBOSE | re.IGNORECASE,
)

FACTORIAL = re.compile(r"(?<=\d)!(?!=)")


def last_number(text: str) -> str | None:
    """Return the last number of a text, with its sign, scale and percent sign.

    None without one, and if it may be a factorial: "13!".
    """
    last = deque(NUMBER.finditer(text), maxlen=1)
    return last[0].group() if last and not FACTORIAL.match(text, last[0].end()) else None
