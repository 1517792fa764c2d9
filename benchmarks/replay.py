"""Answers of the embedded pair, whose forwards another pair replays with its own sizes.

Random pairs never accept each other's drafts. So the embedded pair decides what is run, and the
subject's pair shows how long it takes.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from benchmarks.floor import Floor, Forward, recorded, work
from benchmarks.lockstep import SLOTS, Price, costs, traces
from benchmarks.pairs import Subject, embedded
from benchmarks.report import Finding, Race, Target, race
from citer.decoding.answer import Work
from citer.decoding.engine import Engine
from citer.decoding.policy import LLM_ALONE, Policy
from citer.evaluation.cost import Prices
from citer.evaluation.lockstep import best_cap
from citer.evaluation.rivals.untrained import low_entropy
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
TOKENS = (1, 9, 17, 33)  # new tokens per row of the LLM's timed forwards
CACHED = 192  # tokens per row before them


class Written(NamedTuple):
    """The forwards that wrote some answers, and the number of tokens written."""

    forwards: Sequence[Forward]
    tokens: int


def _replayed(
    title: str, subject: Subject, forwards: Mapping[str, tuple[Sequence[Forward], int]]
) -> Race:
    """Time forwards at the subject's size, each with the amount of work that it stands for."""

    methods = {
        name: Floor(subject.pair, subject.head, ran, amount).run
        for name, (ran, amount) in forwards.items()
    }
    return race(f"{title}, {subject.name}", methods)


def against_seconds(subject: Subject) -> list[Finding]:
    """Row 12: rank correlation of seconds and bytes per token, each relative to the LLM alone.

    The embedded pair answers one question at a time, with its certainty as the router.
    """
    source = embedded()
    written = {name: write(source, rule, QUESTIONS) for name, rule in RULES.items()}
    timed = _replayed("bytes", subject, written)
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


def against_delay(subject: Subject) -> list[Finding]:
    """Row 14: seconds with the engine's delay / of lockstep drafting at its best cap."""
    source, policy = embedded(), Policy(low_entropy, Rule("risk", 0.9, 0.1))
    findings = []
    for slots in SLOTS[1:]:
        requests = source.requests(4 * slots)
        engine = Engine(source.pair, slots, source.new_tokens, delayed=True)
        routed, alone = (traces(engine, requests, each) for each in (policy, LLM_ALONE))
        price = seconds_of(subject, slots)
        cost = costs(routed, alone, slots, price)
        cap = best_cap(routed, slots, price)
        what = f"delayed / lockstep, batch {slots}"
        value = cost["delayed"] / cost[f"lockstep {cap}"]
        target = Target(">", 1) if subject.name == "gpu" else None
        findings.append(Finding(14, what, subject.name, value, target, {"best cap": cap, **cost}))
    return findings


def seconds_of(subject: Subject, rows: int) -> Price:
    """Measure forwards of `rows` rows. Return the price of work in seconds."""
    shapes = [_shape("slm", rows, 1), *(_shape("llm", rows, tokens) for tokens in TOKENS)]
    timed = _replayed(f"lockstep, batch {rows}", subject, {str(s): ([s], 1) for s in shapes})
    step, *visits = (1 / timed.speed(name) for name in timed.speeds)
    positions = [rows * tokens for tokens in TOKENS]

    def price(slm: Work, llm: Work) -> float:
        visit = np.interp(llm.positions / max(llm.forwards, 1), positions, visits)
        return slm.forwards * step + llm.forwards * float(visit)

    return price


def _shape(model: str, rows: int, tokens: int) -> Forward:
    return Forward(model, (CACHED,) * rows, (tokens,) * rows, (tokens,) * rows)
