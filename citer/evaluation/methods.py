"""The style of a method: how reports show and draw it.

A method is defined together with its style. Its points store the style.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, NamedTuple

Row = dict[str, Any]
MODELS = ("slm", "llm")  # each alone: both ends of every frontier

LABELS = {
    "bild": "BiLD",
    "citer_s": "CITER-S",
    "co_llm": "Co-LLM",
    "query": "query-level",
}

# Colours and markers of iterations. The colours are from Okabe and Ito's palette, which
# colour-blind readers can tell apart. Rivals have other colours.
ITERATIONS = (("#0072B2", "o"), ("#D55E00", "s"), ("#CC79A7", "D"), ("#56B4E9", "P"))


class Kind(StrEnum):
    """The kind of a method. It decides at which rule a report shows the method."""

    ALONE = "alone"  # one model writes every token: its only rule
    ROUTER = "router"  # a trained router without audits: the chosen rule
    AUDITED = "audited"  # a trained router with audits: the chosen rule
    POLICY = "policy"  # any scorer of a router, with or without audits: the chosen rule
    RIVAL = "rival"  # another way to route: the LLM fraction of the last router without audits
    EXACT = "exact"  # no training, and always the LLM's own answer: the cheapest rule
    BOUND = "bound"  # no method, since it knows the LLM's answer in advance: its only rule


class Style(NamedTuple):
    """A method's kind, and the colour and marker (Matplotlib's) of its line in the picture."""

    kind: Kind
    colour: str
    marker: str

    @property
    def columns(self) -> dict[str, str]:
        """Columns of the POINT table."""
        return self._asdict() | {"kind": self.kind.value}


PLAIN = Style(Kind.RIVAL, "#000000", ".")  # the default


def styles(points: Iterable[Row]) -> dict[str, Style]:
    """Collect the style of every method in rows of the POINT table, in order of appearance."""
    return {row["method"]: Style(Kind(row["kind"]), row["colour"], row["marker"]) for row in points}


def label(method: str) -> str:
    """Format a method's name for people: `LLM`, `router 2`, `Co-LLM`."""
    return method.upper() if method in MODELS else LABELS.get(method, method.replace("_", " "))
