"""`citer bench`: compare routed decoding with each model alone, and with what bytes predict."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from transformers.utils import logging

from benchmarks.pairs import Subject, generated, make_subject, pair_names
from benchmarks.report import Finding, Method, add_to_report, print_report, race
from citer.decoding.answer import Request
from citer.decoding.engine import Engine
from citer.decoding.policy import LLM_ALONE, SLM_ALONE, Policy
from citer.errors import InputError
from citer.evaluation.cost import Prices, Trace
from citer.models.graphs import no_graphs
from citer.models.pair import LanguageModel
from citer.storage.tables import check_target

FRACTION = 0.2


def run(requested: Sequence[str], pairs: Sequence[str], threads: int | None, out: Path) -> None:
    """Measure rows on pairs, by default each on its own; print them, and write them to `out`.

    Raises InputError for an unknown row or pair, or if no row is measured on a requested pair.
    """
    rows = [ROWS[name] for name in chosen("row", requested, [*ROWS])]
    names = chosen("pair", pairs, pair_names())
    plan = {name: [row for row in rows if name in row.pairs] for name in names}
    if not any(plan.values()):
        raise InputError(f"bench: {', '.join(requested)}: not measured on {', '.join(plan)}")
    check_target(out)
    logging.set_verbosity_error()
    if threads:
        torch.set_num_threads(threads)
    findings = []
    for name, planned in plan.items():
        for row in planned:
            findings.append(row.measure(make_subject(name)))
            add_to_report(out, findings[-1])  # now, because the next row may take an hour
    print_report(findings)


def chosen(kind: str, requested: Sequence[str], known: Sequence[str]) -> list[str]:
    """Return the requested names, by default all. Raises InputError for one that is not `known`."""
    for name in requested:
        if name not in known:
            raise InputError(f"bench: no {kind} {name!r} here; expected {', '.join(known)}")
    return [name for name in known if not requested or name in requested]


def decode(engine: Engine, requests: Sequence[Request], policy: Policy) -> int:
    """Decode all requests and return the number of new tokens."""
    return sum(len(answer.token_ids) for answer in engine.decode(requests, policy))


def _generate(subject: Subject, model: LanguageModel, requests: Sequence[Request]) -> int:
    """Answer by transformers, one prompt at a time; return the number of new tokens."""
    answers = (
        generated(subject.pair, model, request.prompt_ids, subject.new_tokens)
        for request in requests
    )
    return sum(map(len, answers))


def _decoding(
    engine: Engine, requests: Sequence[Request], policies: Mapping[str, Policy]
) -> dict[str, Method]:
    return {name: partial(decode, engine, requests, each) for name, each in policies.items()}


def against_llm(subject: Subject) -> Finding:
    """Routed decoding / the LLM alone at batch 1, as measured and as bytes predict."""
    requests = subject.requests(1)
    timed = race(f"alone, {subject.name}", _alone_methods(subject, requests))
    gain = timed.ratio("routed", "LLM generate")
    details = {"bytes predict": prediction_by_bytes(subject, requests)} | timed.details()
    return Finding("alone", "routed at 20 % / LLM by generate", subject.name, gain, details)


def _alone_methods(subject: Subject, requests: Sequence[Request]) -> dict[str, Method]:
    pair = subject.pair
    policies = {"routed": subject.policy(FRACTION), "SLM": SLM_ALONE, "LLM": LLM_ALONE}
    methods = _decoding(Engine(pair, 1, subject.new_tokens), requests, policies)
    for name, model in {"SLM generate": pair.slm, "LLM generate": pair.local_llm}.items():
        methods[name] = partial(_generate, subject, model, requests)
    return methods


def against_bytes(subject: Subject) -> Finding:
    """Routed / LLM alone by the engine with CUDA graphs, against their bytes; each without, too."""
    requests = subject.requests(1)
    policies = {"routed": subject.policy(FRACTION), "LLM": LLM_ALONE}
    launched = {f"{name} launched": policy for name, policy in policies.items()}
    plain = Engine(subject.pair, 1, subject.new_tokens, make_graphs=no_graphs)
    methods = _decoding(Engine(subject.pair, 1, subject.new_tokens), requests, policies)
    timed = race(f"graphs, {subject.name}", methods | _decoding(plain, requests, launched))
    gain, predicted = timed.ratio("routed", "LLM"), prediction_by_bytes(subject, requests)
    details = {"gain": gain, "bytes predict": predicted}
    for name in policies:
        details[f"{name}, graphs / launched"] = timed.ratio(name, f"{name} launched")
    what = "routed at 20 % / LLM, both by the engine / bytes' prediction"
    return Finding("graphs", what, subject.name, gain / predicted, details | timed.details())


def prediction_by_bytes(subject: Subject, requests: Sequence[Request]) -> float:
    """Return bytes by the LLM alone / bytes by routing, at batch 1 (citer.evaluation.cost)."""
    engine = Engine(subject.pair, 8, subject.new_tokens)
    prompts = {request.key: len(request.prompt_ids) for request in requests}
    prices = Prices.of(subject.pair, subject.head.weight_bytes)
    moved = dict.fromkeys((FRACTION, 1.0), 0.0)
    for fraction in moved:
        for answer in engine.decode(requests, subject.policy(fraction)):
            trace = Trace.of(prompts[answer.key], len(answer.token_ids), answer.visits)
            moved[fraction] += prices.moved(trace.slm, trace.llm)
    return moved[1.0] / moved[FRACTION]


class Row(NamedTuple):
    """A row of the table in README.md: the function that measures it, and the pairs."""

    measure: Callable[[Subject], Finding]
    pairs: Sequence[str]


ROWS = {
    "alone": Row(against_llm, ("cpu-bf16", "gpu")),
    "graphs": Row(against_bytes, ("gpu",)),
}
