"""Exact rules of an untrained pair: what each costs, from one forward of the SLM over answers.

An exact rule gives the LLM's own text, so the SLM's drafts follow the LLM's answer up to the first
one that differs. The scores of drafts after that are not known; those of the LLM's tokens at the
same positions take their place. So do the tokens that a lookup would copy there. Where a draft was
wrong, the SLM does not end with the LLM's answer: its last known score stands for later ones.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, chain, pairwise, repeat
from statistics import fmean
from time import perf_counter
from typing import NamedTuple

import torch
from rich.table import Table

from citer.decoding.answer import Request, Visit
from citer.decoding.engine import Engine
from citer.decoding.lookup import PAYS, Guess, copies, share
from citer.decoding.policy import CERTAINTIES, Policy, StepView
from citer.evaluation.cost import Batch, Prices, Trace
from citer.models.pair import Pair, Text, length_buckets, predict
from citer.pairs.probe import Reply
from citer.pairs.profile import BOUND, COLUMNS, Agreement, forwards
from citer.rule import LLM, Rule

RISKS = (*(tenth / 10 for tenth in range(1, 10)), 0.95)
GAMMAS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)
EVERY = [Rule("every", gamma, 1.0) for gamma in GAMMAS]
BY_RISK = [Rule("risk", at, 1.0, name) for name in CERTAINTIES for at in RISKS]
COPYING = [
    *(replace(rule, draft="both") for rule in [*EVERY, *BY_RISK]),
    *(replace(rule, draft="lookup") for rule in EVERY),
    *(Rule("risk", at, 1.0, draft="lookup") for at in RISKS),
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


BEYOND = 16  # drafts after the end of the LLM's answer, at most


class Forced(NamedTuple):
    """An answer of the LLM with T tokens, read by the SLM and by a lookup."""

    prompt_len: int
    agrees: Sequence[bool]  # whether the SLM's choice is the LLM's token
    scores: Mapping[str, Sequence[float]]  # by the certainty's name
    copies: Sequence[Guess | None]
    room: int = BEYOND  # for tokens after the end


class Priced(NamedTuple):
    """A rule with its visits per token, and its cost by batch."""

    rule: Rule | None
    visits: float
    costs: Mapping[Batch, float]


def read_by_slm(pair: Pair, replies: Sequence[Reply], batch_tokens: int, most: int) -> list[Forced]:
    """Let the SLM read answers of at most `most` tokens, in forwards of at most `batch_tokens`."""
    texts, found = [_text(pair, reply) for reply in replies], dict[int, Forced]()
    for batch in length_buckets([len(text.ids) for text in texts], batch_tokens):
        found |= zip(batch, _read(pair, [texts[n] for n in batch]), strict=True)
    return [found[n]._replace(room=most - reply.tokens) for n, reply in enumerate(replies)]


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
        Forced(
            text.first,
            agrees[start:end],
            {name: own[start:end] for name, own in scores.items()},
            copies(text.ids[: text.first], text.ids[text.first :]),
        )
        for text, (start, end) in zip(texts, pairwise(ends), strict=True)
    ]


def _text(pair: Pair, reply: Reply) -> Text:
    prompt_ids = pair.prompts.prompt_ids(reply.problem)
    eos = [pair.eos_ids[0]] * (reply.tokens - len(reply.token_ids))
    return Text([*prompt_ids, *reply.token_ids, *eos], len(prompt_ids))


def rules(answers: Sequence[Forced]) -> list[Rule | None]:
    """Return the rules to price. The last is None, the oracle: it visits where the SLM is wrong.

    A lookup drafts in some of them if it is often right.
    """
    pays = share([*chain.from_iterable(answer.copies for answer in answers)]) >= PAYS
    return [*EVERY, *BY_RISK, *(COPYING if pays else ()), None]


def priced(pair: Pair, answers: Sequence[Forced]) -> list[Priced]:
    """Return every exact rule with its cost, and the oracle last."""
    prices, tokens = Prices.of(pair), sum(len(answer.agrees) for answer in answers)
    alone, found = _moved(prices, _traces(LLM, answers)), []
    for rule in rules(answers):
        own = _traces(rule, answers)
        moved = zip(COLUMNS, _moved(prices, own), alone, strict=True)
        costs = {batch: routed / whole for batch, routed, whole in moved}
        found.append(Priced(rule, sum(trace.llm.forwards for trace in own) / tokens, costs))
    return found


def agreement(answers: Sequence[Forced]) -> Agreement:
    """Return what other sizes need."""
    agrees = [each for answer in answers for each in answer.agrees]
    shared = {
        f"{rule:.4g}" if rule else BOUND: forwards(_traces(rule, answers))
        for rule in (LLM, *rules(answers))
    }
    return Agreement(fmean(agrees), len(agrees), shared)


def _traces(rule: Rule | None, answers: Sequence[Forced]) -> list[Trace]:
    return [Trace.of(own.prompt_len, len(own.agrees), visits(rule, own)) for own in answers]


def _moved(prices: Prices, traces: Sequence[Trace]) -> list[float]:
    """Return the bytes that all answers move in each batch."""
    return [prices.moved(*batch.work(traces)) for batch in COLUMNS]


def visits(rule: Rule | None, answer: Forced) -> list[Visit]:
    """Return the visits by an exact rule, by the LLM alone or by the oracle in this answer."""
    if rule == LLM:
        return [Visit(0, n, n) for n in range(len(answer.agrees))]
    if rule is None:
        places = [n for n, agrees in enumerate(answer.agrees) if not agrees]
        return [Visit(at - last, at, at) for last, at in pairwise([-1, *places])]
    made, drafts = [Visit(0, 0, 0)] * bool(rule.cap), _drafts(rule, answer)
    written = len(made)
    copies, room = answer.copies if rule.draft != "slm" else (), min(answer.room, BEYOND)
    while written < len(drafts):
        run = _run(rule, drafts[written:], room)
        kept = _kept(run)
        end = written + len(run)
        copied = tuple(written + n for n, copy in enumerate(copies[written:end]) if copy)
        # The last token of an answer, an EOS or at the limit, is judged unread.
        seen = end - (end == len(drafts) + room * (kept < len(run)))
        made.append(Visit(len(run) - len(copied), seen, written + kept, copied=copied))
        written += kept + 1
    return made


def _drafts(rule: Rule, answer: Forced) -> list[Guess | None]:
    """Return what is drafted at each position, None where the LLM writes at once."""
    by_slm = map(Guess, answer.agrees, answer.scores.get(rule.by) or repeat(1.0))
    if rule.draft == "slm":
        return [*by_slm]
    if rule.draft == "lookup":
        return [*answer.copies]
    return [copy or draft for copy, draft in zip(answer.copies, by_slm, strict=True)]


def _kept(run: Sequence[Guess]) -> int:
    """Return the number of drafts before the first wrong one."""
    return next((n for n, draft in enumerate(run) if not draft.agrees), len(run))


def _run(rule: Rule, drafts: Sequence[Guess | None], room: int) -> list[Guess]:
    """Return the drafts up to the next visit."""
    risk, made = 1.0, list[Guess]()
    for draft in chain(drafts, repeat(drafts[-1], room * (rule.draft != "lookup"))):
        if not draft or (len(made) >= len(drafts) and _kept(made) == len(made)):
            break
        made.append(draft)
        risk *= draft.score
        if rule.due(risk, len(made)):
            break
    return made


def seconds(engine: Engine, batches: Sequence[Sequence[Request]], *policies: Policy) -> float:
    """Return how long it takes to answer the batches by all policies, one batch after the other.

    On a GPU they are answered twice, since the first answers capture CUDA graphs.
    """
    for _ in range(2 if engine.pair.slm.device.type == "cuda" else 1):
        start = perf_counter()
        for batch in batches:
            deque(engine.sweep(batch, policies), maxlen=0)
    return perf_counter() - start


def best(found: Sequence[Priced], batch: Batch) -> Rule:
    """Return the cheapest rule of a batch."""
    costs = {each.rule: each.costs[batch] for each in found if each.rule}
    return min(costs, key=lambda rule: costs[rule])


def table(found: Sequence[Priced]) -> Table:
    """Make a table of the best rule of each batch size, and of the oracle."""
    shown = Table("rule", title="The LLM's own text without training: bytes, LLM alone = 1")
    for title in ("visits", *(f"batch {batch.slots}" for batch in COLUMNS)):
        shown.add_column(title, justify="right")
    chosen = {*(best(found, batch) for batch in COLUMNS), None}
    for each in (each for each in found if each.rule in chosen):
        name = f"{each.rule:.4g}" if each.rule else "a head that is never wrong"
        shown.add_row(name, f"{each.visits:.3f}", *(f"{own:.3f}" for own in each.costs.values()))
    return shown
