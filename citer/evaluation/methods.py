"""The style of a method: how reports show and draw it; and the heads of a router for people.

A method is defined together with its style. Its points store the style.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any, NamedTuple

Row = dict[str, Any]
MODELS = ("slm", "llm")  # each alone: both ends of every frontier

LABELS = {"bild": "BiLD", "citer_s": "CITER-S", "co_llm": "Co-LLM", "query": "query-level"}

# Colours and markers of iterations. The colours are from Okabe and Ito's palette, which
# colour-blind readers can tell apart. Rivals have other colours.
ITERATIONS = (("#0072B2", "o"), ("#D55E00", "s"), ("#CC79A7", "D"), ("#56B4E9", "P"))


class Kind(StrEnum):
    """The kind of a method. It decides how a report shows the method, and at which rule."""

    ALONE = "alone"  # one model writes every token: its only rule
    ROUTER = "router"  # CITER's head without audits: the chosen rule
    AUDITED = "audited"  # CITER's head with audits: the chosen rule
    POLICY = "policy"  # any other scorer, with or without audits: the chosen rule
    RIVAL = "rival"  # a known method that needs no preferences: the chosen rule
    EXACT = "exact"  # always the LLM's own answer: the chosen rule
    BOUND = "bound"  # no candidate: the rule nearest to the deployed one in LLM fraction


# Methods that each iteration has anew, since their heads learn from its labels.
ANEW = ("router", "audited", "policy", "exact")


class Style(NamedTuple):
    """Columns of the POINT table: a method's kind, and the look of its line in the picture."""

    kind: Kind
    colour: str
    marker: str  # Matplotlib's


PLAIN = Style(Kind.BOUND, "#000000", ".")  # the default


def styles(points: Iterable[Row]) -> dict[str, Style]:
    """Collect the style of every method in rows of the POINT table, in order of appearance."""
    return {row["method"]: Style(Kind(row["kind"]), row["colour"], row["marker"]) for row in points}


def numbered(method: str, iteration: str) -> str:
    """Add the iteration to the name of a method in `ANEW`: `router_2`."""
    return f"{method}_{iteration}" if method in ANEW else method


def label(method: str) -> str:
    """Format a method's name for people: `LLM`, `router 2`, `Co-LLM`."""
    return method.upper() if method in MODELS else LABELS.get(method, method.replace("_", " "))


class Scored(NamedTuple):
    """A head of a router, by what it learns and what it reads (`citer.training`)."""

    labels: str
    input: str


STATE, WIDE, NUMBERS = "the hidden state", "the hidden state, a wide head", "ten numbers"
INPUTS = {"stand": WIDE, "narrow": STATE, "logistic": NUMBERS}  # of heads that learn preferences
TARGETS = {  # of heads that are trained once
    "agree": "agreement",
    "contested_llm": "contested → LLM",
    "contested_slm": "contested → SLM",
    "co_llm": "Co-LLM's likelihood",
}
SCORERS = {name: Scored("preferences", own) for name, own in INPUTS.items()} | {
    f"{name}{ending}": Scored(labels, own)
    for name, labels in TARGETS.items()
    for ending, own in (("", STATE), ("_logistic", NUMBERS))
}
