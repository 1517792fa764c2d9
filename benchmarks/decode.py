"""Compare routed decoding with its floor and with each model alone."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from transformers import GenerationConfig

from benchmarks.floor import Floor, recorded
from benchmarks.pairs import Subject
from benchmarks.report import Finding, Method, Race, Target, of_two, race
from citer.decoding.answer import Request
from citer.decoding.engine import Engine
from citer.decoding.policy import LLM_ALONE, SLM_ALONE, Policy
from citer.evaluation.cost import Prices, Trace
from citer.models.graphs import no_graphs
from citer.models.pair import LanguageModel, Pair

FRACTION = 0.2
FRACTIONS = (0.05, 0.2, 0.5)


def decode(engine: Engine, requests: Sequence[Request], policy: Policy) -> int:
    """Decode all requests and return the number of new tokens."""
    return sum(len(answer.token_ids) for answer in engine.decode(requests, policy))


def generate(
    pair: Pair,
    model: LanguageModel,
    requests: Sequence[Request],
    batch: int,
    new_tokens: int,
    **options: Any,
) -> int:
    """Answer by transformers, `batch` prompts of equal length at a time; return the new tokens.

    Without EOS, answers have full length.
    """
    config = GenerationConfig(
        max_new_tokens=new_tokens,
        do_sample=False,
        eos_token_id=list(pair.eos_ids) or None,
        pad_token_id=0,
    )
    network: Any = model.network
    written = 0
    for start in range(0, len(requests), batch):
        prompts = [request.prompt_ids for request in requests[start : start + batch]]
        ids_BT = torch.tensor(prompts, device=model.device)
        asked = {"attention_mask": torch.ones_like(ids_BT), "generation_config": config, **options}
        written += network.generate(ids_BT, **asked).numel() - ids_BT.numel()
    return written


def _decoding(
    engine: Engine, requests: Sequence[Request], policies: Mapping[str, Policy]
) -> dict[str, Method]:
    return {name: partial(decode, engine, requests, each) for name, each in policies.items()}


def _floored(subject: Subject, slots: int, requests: Sequence[Request], policy: Policy) -> Floor:
    """Record a decode; return the floor of its forwards, which counts the new tokens."""
    pair, log = recorded(subject.pair)
    engine = Engine(pair, slots, subject.new_tokens, make_graphs=no_graphs)
    written = decode(engine, requests, policy)
    return Floor(subject.pair, subject.head, log, written)


def against_floor(subject: Subject) -> list[Finding]:
    """Row 1: time of the bare forwards / time of decoding."""
    return [_against_floor(subject, 1, batch, Target("≥", 0.9)) for batch in (1, 8)]


def against_embedded_floor(subject: Subject) -> list[Finding]:
    """Row 2: the same at batch 32."""
    return [_against_floor(subject, 2, 32, Target("≥", 0.75))]


def _against_floor(subject: Subject, row: int, batch: int, target: Target) -> Finding:
    """Fill the slots once with answers of equal length, or four times if lengths differ."""
    requests = subject.requests(4 * batch if subject.pair.eos_ids else batch)
    policy = subject.policy(FRACTION)
    floor = _floored(subject, batch, requests, policy)
    engine = Engine(subject.pair, batch, subject.new_tokens)
    methods: dict[str, Method] = {
        "measured": partial(decode, engine, requests, policy),
        "floor": floor.run,
    }
    timed = race(f"floor, {subject.name}, batch {batch}", methods)
    return of_two(row, f"floor / measured, batch {batch}", subject.name, timed, target)


def against_llm(subject: Subject) -> list[Finding]:
    """Row 3: routed decoding / the LLM alone at batch 1, as measured and as floors predict."""
    requests = subject.requests(16 if subject.pair.eos_ids else 1)
    timed = race(f"alone, {subject.name}", _alone_methods(subject, requests))
    gain = timed.ratio("routed", "LLM generate")
    predicted = timed.ratio("routed floor", "LLM floor")
    by_bytes = prediction_by_bytes(subject, requests)
    details = {"floors predict": predicted, "bytes predict": by_bytes} | timed.details()
    target = Target("≥", 2.7) if subject.name == "cpu-bf16" else None
    share = gain / predicted
    return [
        Finding(3, "routed at 20 % / LLM by generate", subject.name, gain, target, details),
        Finding(3, "the same / floors' prediction", subject.name, share, Target("≥", 0.9)),
    ]


def _alone_methods(subject: Subject, requests: Sequence[Request]) -> dict[str, Method]:
    pair, new_tokens = subject.pair, subject.new_tokens
    policies = {"routed": subject.policy(FRACTION), "SLM": SLM_ALONE, "LLM": LLM_ALONE}
    methods = _decoding(Engine(pair, 1, new_tokens), requests, policies)
    for name, model in {"SLM generate": pair.slm, "LLM generate": pair.local_llm}.items():
        methods[name] = partial(generate, pair, model, requests, 1, new_tokens)
    for name in ("routed", "LLM"):
        methods[f"{name} floor"] = _floored(subject, 1, requests, policies[name]).run
    if subject.name == "embedded":  # random models never accept each other's tokens
        by_llm = partial(generate, pair, pair.local_llm, requests, 1, new_tokens)
        methods["assisted generate"] = partial(by_llm, assistant_model=pair.slm.network)
    return methods


def against_bytes(subject: Subject) -> list[Finding]:
    """Row 11: routed / LLM alone, both on the engine with CUDA graphs, against their bytes.

    The details also compare each of the two with itself without graphs.
    """
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
    found = gain / predicted, Target("≥", 0.85), details | timed.details()
    return [Finding(11, what, subject.name, *found)]


def prediction_by_bytes(subject: Subject, requests: Sequence[Request]) -> float:
    """Return bytes by the LLM alone / bytes by routing, at batch 1 (citer.evaluation.cost)."""
    engine = Engine(subject.pair, 8, subject.new_tokens)
    prompts = {request.key: len(request.prompt_ids) for request in requests}
    prices = Prices.of(subject.pair, subject.head.weight_bytes)
    moved = dict.fromkeys((FRACTION, 1.0), 0)
    for fraction in moved:
        for answer in engine.decode(requests, subject.policy(fraction)):
            trace = Trace.of(prompts[answer.key], len(answer.token_ids), answer.visits)
            moved[fraction] += prices.moved(trace.slm, trace.llm)
    return moved[1.0] / moved[FRACTION]


def against_batches(subject: Subject) -> list[Finding]:
    """Row 5: routing at several LLM fractions, delayed or not / the faster LLM alone."""
    findings = []
    for batch in (8, 32):
        timed = race(f"batch {batch}, {subject.name}", _batch_methods(subject, batch))
        findings += [_gain(subject.name, batch, how, timed) for how in ("undelayed", "delayed")]
    return findings


def _batch_methods(subject: Subject, batch: int) -> dict[str, Method]:
    pair, new_tokens, requests = subject.pair, subject.new_tokens, subject.requests(batch)
    methods: dict[str, Method] = {
        "LLM generate": partial(generate, pair, pair.local_llm, requests, batch, new_tokens)
    }
    for how in ("undelayed", "delayed"):
        engine = Engine(pair, batch, new_tokens, delayed=how == "delayed")
        policies = {f"{how} {fraction:g}": subject.policy(fraction) for fraction in FRACTIONS}
        alone = {"LLM": LLM_ALONE} if how == "undelayed" else {}
        methods |= _decoding(engine, requests, alone | policies)
    return methods


def _gain(name: str, batch: int, how: str, timed: Race) -> Finding:
    best = max("LLM generate", "LLM", key=timed.speed)
    gains = {fraction: timed.ratio(f"{how} {fraction:g}", best) for fraction in FRACTIONS}
    details = {f"at {fraction:.0%}": gain for fraction, gain in gains.items()}
    details["pays below LLM fraction"] = crossover(FRACTIONS, list(gains.values()))
    details |= {f"{alone} tokens/s": timed.speed(alone) for alone in ("LLM", "LLM generate")}
    what = f"routed at 20 % / LLM alone, batch {batch}, {how}"
    target = Target(">", 1) if how == "delayed" else None
    return Finding(5, what, name, gains[FRACTION], target, details)


def crossover(fractions: Sequence[float], gains: Sequence[float]) -> float:
    """Return the LLM fraction at which routing stops paying; 0 or 1 if outside `fractions`.

    The time per token, 1 / gain, is about linear in the fraction, so interpolate it.
    """
    costs = [1 / gain for gain in gains]
    if costs[0] >= 1:
        return 0.0
    for n in range(1, len(costs)):
        if costs[n] >= 1:
            share = (1 - costs[n - 1]) / (costs[n] - costs[n - 1])
            return fractions[n - 1] + share * (fractions[n] - fractions[n - 1])
    return 1.0
