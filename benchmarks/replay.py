"""Answers of the embedded pair, whose forwards another pair replays with its own sizes.

Random pairs never accept each other's drafts. So the embedded pair decides what is run, and the
subject's pair shows how long it takes.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.floor import Floor, Forward, recorded, work
from benchmarks.pairs import Subject, embedded
from benchmarks.report import Finding, Target, race
from citer.decoding.engine import Engine
from citer.decoding.policy import LLM_ALONE, Policy, low_entropy
from citer.evaluation.cost import Prices
from citer.models.graphs import no_graphs
from citer.rule import Rule

QUESTIONS = 4  # answered
LLM = "LLM alone"
RULES = {
    LLM: LLM_ALONE.rule,
    "CITER": Rule("score", 0.96),
    "audited": Rule("risk", 0.9, 0.1),
    "exact": Rule("risk", 0.4, 1),
    "speculative": Rule("every", 8, 1),
}


class Written(NamedTuple):
    """The forwards that wrote some answers, and the number of tokens written."""

    forwards: Sequence[Forward]
    tokens: int


def against_seconds(subject: Subject) -> list[Finding]:
    """Row 12: rank correlation of seconds and bytes per token, each relative to the LLM alone.

    The embedded pair answers one question at a time, with its certainty as the router.
    """
    source = embedded()
    written = {name: write(source, rule, QUESTIONS) for name, rule in RULES.items()}
    floors = {name: Floor(subject.pair, subject.head, *each).run for name, each in written.items()}
    timed = race(f"bytes, {subject.name}", floors)
    seconds = {name: timed.ratio(LLM, name) for name in written}
    moved = {name: _moved(subject, answers) for name, answers in written.items()}
    details: dict[str, float] = {}
    for name in RULES:
        details |= {f"{name} seconds": seconds[name], f"{name} bytes": moved[name] / moved[LLM]}
    correlation = rank_correlation(list(seconds.values()), list(moved.values()))
    what = "rank correlation of the rules' seconds and bytes"
    return [Finding(12, what, subject.name, correlation, Target("≥", 0.9), details)]


def write(subject: Subject, rule: Rule, questions: int) -> Written:
    pair, log = recorded(subject.pair)
    engine = Engine(pair, 1, subject.new_tokens, make_graphs=no_graphs)
    answers = engine.decode(subject.requests(questions), Policy(low_entropy, rule))
    return Written(log, sum(len(answer.token_ids) for answer in answers))


def _moved(subject: Subject, written: Written) -> float:
    """Return the bytes moved per token."""
    prices = Prices.of(subject.pair, subject.head.weight_bytes)
    slm, llm = (work(written.forwards, model) for model in ("slm", "llm"))
    return prices.moved(slm, llm) / written.tokens


def rank_correlation(values_N: Sequence[float], others_N: Sequence[float]) -> float:
    """Return Spearman's correlation without ties: 1 - 6 sum(gap²) / (n (n² - 1))."""
    rank_2N = np.argsort(np.argsort([values_N, others_N]))
    gap_N, count = rank_2N[0] - rank_2N[1], len(values_N)
    return 1 - 6 * int(gap_N @ gap_N) / (count * (count**2 - 1))
