"""`citer bench`: compare routed decoding with each model alone, and with what bytes predict."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

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
    plan = {name: [row for row, known in rows if name in known] for name in names}
    if not any(plan.values()):
        raise InputError(f"bench: {', '.join(requested)}: not measured on {', '.join(plan)}")
    check_target(out)
    logging.set_verbosity_error()
    if threads:
        torch.set_num_threads(threads)
    findings = []
    for name, planned in plan.items():
        for row in planned:
            findings.append(row(make_subject(name)))
            add_to_report(out, findings[-1])  # now, because the next row may take an hour
    print_report(findings)


def chosen(kind: str, requested: Sequence[str], known: Sequence[str]) -> list[str]:
    """Return the requested names, by default all. Raises InputError for one that is not `known`."""
    for name in requested:
        if name not in known:
            raise InputError(f"bench: no {kind} {name!r} here; expected {', '.join(known)}")
    return [name for name in known if not requested or name in requested]


def decode(engine: Engine, request: Request, policy: Policy) -> int:
    """Answer the request and return the number of new tokens."""
    [answer] = engine.decode([request], policy)
    return len(answer.token_ids)


def _generate(subject: Subject, model: LanguageModel) -> int:
    """Answer by transformers, and return the number of new tokens."""
    return len(generated(subject.pair, model, subject.request.prompt_ids, subject.new_tokens))


def _decoding(
    engine: Engine, request: Request, policies: Mapping[str, Policy]
) -> dict[str, Method]:
    return {name: partial(decode, engine, request, each) for name, each in policies.items()}


def against_llm(subject: Subject) -> Finding:
    """Routed decoding / the LLM alone at batch 1, as measured and as bytes predict."""
    timed = race(f"alone, {subject.name}", _alone_methods(subject))
    gain = timed.ratio("routed", "LLM generate")
    details = {"bytes predict": prediction_by_bytes(subject)} | timed.details()
    return Finding("alone", "routed at 20 % / LLM by generate", subject.name, gain, details)


def _alone_methods(subject: Subject) -> dict[str, Method]:
    pair = subject.pair
    policies = {"routed": subject.policy(FRACTION), "SLM": SLM_ALONE, "LLM": LLM_ALONE}
    methods = _decoding(Engine(pair, 1, subject.new_tokens), subject.request, policies)
    for name, model in {"SLM generate": pair.slm, "LLM generate": pair.local_llm}.items():
        methods[name] = partial(_generate, subject, model)
    return methods


def against_bytes(subject: Subject) -> Finding:
    """Routed / LLM alone by the engine with CUDA graphs, against their bytes; each without, too."""
    request, new_tokens = subject.request, subject.new_tokens
    policies = {"routed": subject.policy(FRACTION), "LLM": LLM_ALONE}
    launched = {f"{name} launched": policy for name, policy in policies.items()}
    plain = Engine(subject.pair, 1, new_tokens, make_graphs=no_graphs)
    methods = _decoding(Engine(subject.pair, 1, new_tokens), request, policies)
    methods |= _decoding(plain, request, launched)
    timed = race(f"graphs, {subject.name}", methods)
    gain, predicted = timed.ratio("routed", "LLM"), prediction_by_bytes(subject)
    details = {"gain": gain, "bytes predict": predicted}
    for name in policies:
        details[f"{name}, graphs / launched"] = timed.ratio(name, f"{name} launched")
    what = "routed at 20 % / LLM, both by the engine / bytes' prediction"
    return Finding("graphs", what, subject.name, gain / predicted, details | timed.details())


def prediction_by_bytes(subject: Subject) -> float:
    """Return bytes by the LLM alone / bytes by routing, at batch 1 (citer.evaluation.cost)."""
    engine, request = Engine(subject.pair, 1, subject.new_tokens), subject.request
    prices = Prices.of(subject.pair, subject.head.weight_bytes)
    moved = []
    for fraction in (1.0, FRACTION):
        [answer] = engine.decode([request], subject.policy(fraction))
        trace = Trace.of(len(request.prompt_ids), len(answer.token_ids), answer.visits)
        moved.append(prices.moved(trace.slm, trace.llm))
    return moved[0] / moved[1]


# The functions that measure the rows of the table in README.md, and their pairs.
ROWS = {"alone": (against_llm, ("cpu-bf16", "gpu")), "graphs": (against_bytes, ("gpu",))}
