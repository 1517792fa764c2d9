"""Exact rules of an untrained pair: what each costs, from one forward of the SLM over answers.

An exact rule gives the LLM's own text, so the SLM's drafts follow the LLM's answer up to the first
one that differs. The scores of drafts after that are not known; those of the LLM's tokens at the
same positions take their place.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from math import ceil
from statistics import fmean
from time import perf_counter
from typing import NamedTuple

import torch
from rich.table import Table

from citer.decoding.answer import Request, Visit
from citer.decoding.engine import Engine
from citer.decoding.policy import CERTAINTIES, Policy, StepView
from citer.evaluation.cost import Batch, Prices, Trace
from citer.models.pair import Pair, Text, length_buckets, predict
from citer.pairs.probe import Reply
from citer.pairs.profile import BOUND, COLUMNS, FILLING, Agreement, forwards
from citer.rule import LLM, Rule

RISKS = (*(tenth / 10 for tenth in range(1, 10)), 0.95)
GAMMAS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)
RULES: Sequence[Rule | None] = [  # None: the oracle, which visits only where the SLM is wrong
    *(Rule("every", gamma, 1.0) for gamma in GAMMAS),
    *(Rule("risk", at, 1.0, name) for name in CERTAINTIES for at in RISKS),
    None,
]
SEVERAL = [  # as different as the candidates of a run
    Rule.parse(text)
    for text in (
        "every 2 audit 0.25",
        "every 4 audit 1",
        "every 8 audit 0.25",
        "every 16 audit 1",
        "risk 0.2 audit 0.25 by entropy",
        "risk 0.4 audit 1 by entropy",
        "risk 0.6 audit 0.25 by probability",
        "risk 0.8 audit 1 by probability",
    )
]


class Forced(NamedTuple):
    """An answer of the LLM with T tokens, read by the SLM."""

    prompt_len: int
    agrees: Sequence[bool]  # whether the SLM's choice is the LLM's token
    scores: Mapping[str, Sequence[float]]  # by the certainty's name


class Priced(NamedTuple):
    """A rule with its visits per token, and its cost by batch."""

    rule: Rule | None
    visits: float
    costs: Mapping[Batch, float]


def read_by_slm(pair: Pair, replies: Sequence[Reply], batch_tokens: int) -> list[Forced]:
    """Let the SLM read the LLM's answers, in forwards of at most `batch_tokens` padded tokens."""
    texts, found = [_text(pair, reply) for reply in replies], dict[int, Forced]()
    for batch in length_buckets([len(text.ids) for text in texts], batch_tokens):
        found |= zip(batch, _read(pair, [texts[n] for n in batch]), strict=True)
    return [found[n] for n in range(len(texts))]


@torch.inference_mode()
def _read(pair: Pair, texts: Sequence[Text]) -> list[Forced]:
    agrees, scores = list[bool](), {name: list[float]() for name in CERTAINTIES}
    for predicted in predict(pair.slm, pair.vocabulary, texts):
        none_C = torch.zeros_like(predicted.given_C)
        view = StepView(predicted.hidden_CH, predicted.logits_CV, none_C, none_C)
        agrees += (predicted.logits_CV.argmax(-1) == predicted.given_C).tolist()
        for name, scorer in CERTAINTIES.items():
            scores[name] += scorer(view).tolist()
    ends = accumulate((len(text.ids) - text.first for text in texts), initial=0)
    return [
        Forced(text.first, agrees[start:end], {k: own[start:end] for k, own in scores.items()})
        for text, (start, end) in zip(texts, pairwise(ends), strict=True)
    ]


def _text(pair: Pair, reply: Reply) -> Text:
    prompt_ids = pair.prompts.prompt_ids(reply.problem)
    eos = [pair.eos_ids[0]] * (reply.tokens - len(reply.token_ids))
    return Text([*prompt_ids, *reply.token_ids, *eos], len(prompt_ids))


def priced(pair: Pair, answers: Sequence[Forced]) -> list[Priced]:
    """Return every exact rule with its cost, and the oracle last."""
    prices, tokens = Prices.of(pair), sum(len(answer.agrees) for answer in answers)
    alone, found = _moved(prices, _traces(LLM, answers)), []
    for rule in RULES:
        own = _traces(rule, answers)
        moved = zip(COLUMNS, _moved(prices, own), alone, strict=True)
        costs = {batch: routed / whole for batch, routed, whole in moved}
        found.append(Priced(rule, sum(trace.llm.forwards for trace in own) / tokens, costs))
    return found


def agreement(answers: Sequence[Forced]) -> Agreement:
    """Return what other sizes need. The answers are repeated to fill the largest batch."""
    agrees = [each for answer in answers for each in answer.agrees]
    times = ceil(FILLING / len(answers))
    named = {f"{rule:.4g}" if rule else BOUND: _traces(rule, answers) for rule in (LLM, *RULES)}
    rules = {name: forwards(own * times) for name, own in named.items()}
    return Agreement(fmean(agrees), len(agrees), rules)


def _traces(rule: Rule | None, answers: Sequence[Forced]) -> list[Trace]:
    return [Trace.of(own.prompt_len, len(own.agrees), visits(rule, own)) for own in answers]


def _moved(prices: Prices, traces: Sequence[Trace]) -> list[int]:
    """Return the bytes that all answers move in each batch."""
    return [prices.moved(*batch.work(traces)) for batch in COLUMNS]


def visits(rule: Rule | None, answer: Forced) -> list[Visit]:
    """Return the visits by an exact rule, by the LLM alone or by the oracle in this answer."""
    if rule == LLM:
        return [Visit(0, n, n) for n in range(len(answer.agrees))]
    if rule is None:
        places = [n for n, agrees in enumerate(answer.agrees) if not agrees]
        return [Visit(at - last, at, at) for last, at in pairwise([-1, *places])]
    made, written, scores = list[Visit](), 0, answer.scores.get(rule.by)
    while written < len(answer.agrees):
        drafts, kept = _drafted(rule, answer.agrees[written:], scores and scores[written:])
        # An EOS at the end is judged unread.
        seen = min(written + drafts, len(answer.agrees) - 1)
        made.append(Visit(drafts, seen, written + kept))
        written += kept + 1
    return made


def _drafted(rule: Rule, agrees: Sequence[bool], scores: Sequence[float] | None) -> tuple[int, int]:
    """Return how many drafts are made before a visit, and how many of them are kept."""
    risk, drafts = 1.0, 0
    for drafts, score in enumerate(scores or [1.0] * len(agrees), 1):
        risk *= score
        if rule.due(risk, drafts):
            break
    kept = next((n for n, agrees in enumerate(agrees[:drafts]) if not agrees), drafts)
    return drafts, kept


def seconds(engine: Engine, batches: Sequence[Sequence[Request]], *policies: Policy) -> float:
    """Return how long it takes to answer the batches by all policies, one batch after the other.

    On a GPU they are answered twice, since the first answers capture CUDA graphs.
    """
    for _ in range(2 if engine.pair.slm.device.type == "cuda" else 1):
        start = perf_counter()
        for batch in batches:
            deque(engine.sweep(batch, policies), maxlen=0)
    return perf_counter() - start


def best(found: Sequence[Priced], batch: Batch) -> Priced:
    """Return the cheapest rule of a batch."""
    return min((each for each in found if each.rule), key=lambda each: each.costs[batch])


def table(found: Sequence[Priced]) -> Table:
    """Make a table of the best rule of each batch size, and of the oracle."""
    shown = Table("rule", title="The LLM's own text without training: bytes, LLM alone = 1")
    for title in ("visits", *(f"batch {batch.slots}" for batch in COLUMNS)):
        shown.add_column(title, justify="right")
    rows = {each.rule: each for each in (*(best(found, batch) for batch in COLUMNS), found[-1])}
    for each in rows.values():
        name = f"{each.rule:.4g}" if each.rule else "bound for a trained head"
        shown.add_row(name, f"{each.visits:.3f}", *(f"{own:.3f}" for own in each.costs.values()))
    return shown
