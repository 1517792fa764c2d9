"""The heads of a router by what they learn and what they read (`citer.training`)."""

from typing import NamedTuple


class Scored(NamedTuple):
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
