"""Compare routed decoding with its floor, with each model alone, and with the naive way."""

from collections.abc import Sequence
from functools import partial

from benchmarks import naive
from benchmarks.alone import generate
from benchmarks.floor import Floor, Forward, against_transformers, copy_bandwidth, recorded
from benchmarks.pairs import Subject
from benchmarks.race import Method, Race, race
from benchmarks.report import Finding, Target, of_two
from citer.decoding.answer import Request
from citer.decoding.engine import Engine
from citer.decoding.policy import LLM_ALONE, SLM_ALONE, Policy
from citer.evaluation.cost import Prices, Trace
from citer.models.graphs import cuda_graphs, no_graphs

FRACTION = 0.2
FRACTIONS = (0.05, 0.2, 0.5)
NAIVE_TOKENS = 64  # tokens per answer; the naive way would take very long for whole answers


def decode(engine: Engine, requests: Sequence[Request], policy: Policy) -> int:
    """Decode all requests and return the number of new tokens."""
    return sum(len(answer.token_ids) for answer in engine.decode(requests, policy))


def floor_of(
    subject: Subject, slots: int, requests: Sequence[Request], policy: Policy
) -> tuple[Floor, int]:
    """Record a decode; return the floor of its forwards and the number of new tokens."""
    pair, log = recorded(subject.pair)
    engine = Engine(pair, slots, subject.new_tokens, make_graphs=no_graphs)
    written = decode(engine, requests, policy)
    return Floor(subject.pair, subject.head, log), written


def against_floor(subject: Subject, row: int, batch: int, target: Target) -> Finding:
    """Rows 1 and 2: time of the bare forwards / time of decoding."""
    requests, policy = _requests(subject, batch), subject.policy(FRACTION)
    floor, written = floor_of(subject, batch, requests, policy)
    engine = Engine(subject.pair, batch, subject.new_tokens)
    timed = race(
        f"floor, {subject.name}, batch {batch}",
        {
            "measured": partial(decode, engine, requests, policy),
            "floor": _replayed(floor, written),
        },
    )
    details = timed.details() | _floor_details(subject, floor.forwards)
    value = timed.ratio("measured", "floor")
    return Finding(row, f"floor / measured, batch {batch}", subject.name, value, target, details)


def _requests(subject: Subject, batch: int) -> list[Request]:
    """Fill the slots once with answers of equal length, or four times if lengths differ."""
    return subject.requests(4 * batch if subject.pair.eos_ids else batch)


def _replayed(floor: Floor, written: int) -> Method:
    def run() -> int:
        floor.run()
        return written

    return run


def _floor_details(subject: Subject, forwards: Sequence[Forward]) -> dict[str, float]:
    details = {}
    for check in against_transformers(subject.pair, forwards):
        name = f"{check.forward.model} {check.forward.kind}"
        details[f"{name} / transformers'"] = check.slowdown
        if check.forward.kind == "step":
            details[f"{name} GB/s"] = check.bandwidth / 1e9
    return details | {"copy GB/s": copy_bandwidth(subject.pair.slm.device) / 1e9}


def against_llm(subject: Subject) -> list[Finding]:
    """Row 3: routed decoding / the LLM alone at batch 1, as measured and as floors predict."""
    requests = subject.requests(16 if subject.pair.eos_ids else 1)
    timed = race(f"alone, {subject.name}", _methods(subject, requests))
    gain = timed.ratio("routed", "LLM generate")
    predicted = timed.ratio("routed floor", "LLM floor")
    weights = prediction_by_bytes(subject, requests)
    return [
        Finding(
            3,
            "routed at 20 % / LLM by generate",
            subject.name,
            gain,
            Target("≥", 2.7) if subject.name == "cpu-bf16" else None,
            {"floors predict": predicted, "bytes predict": weights} | timed.details(),
        ),
        Finding(
            3, "the same / floors' prediction", subject.name, gain / predicted, Target("≥", 0.9)
        ),
    ]


def _methods(subject: Subject, requests: Sequence[Request]) -> dict[str, Method]:
    pair, new_tokens, routed = subject.pair, subject.new_tokens, subject.policy(FRACTION)
    engine = Engine(pair, 1, new_tokens)
    by_engine = {"routed": routed, "SLM": SLM_ALONE, "LLM": LLM_ALONE}
    by_generate = {"SLM generate": pair.slm, "LLM generate": pair.local_llm}
    methods: dict[str, Method] = {}
    for name, policy in by_engine.items():
        methods[name] = partial(decode, engine, requests, policy)
    for name, model in by_generate.items():
        methods[name] = partial(generate, pair, model, requests, 1, new_tokens)
    for name in ("routed", "LLM"):
        floor, written = floor_of(subject, 1, requests, by_engine[name])
        methods[f"{name} floor"] = _replayed(floor, written)
    if subject.name == "embedded":  # random models never accept each other's tokens
        methods["assisted generate"] = partial(
            generate,
            pair,
            pair.local_llm,
            requests,
            1,
            new_tokens,
            assistant_model=pair.slm.network,
        )
    return methods


def against_bytes(subject: Subject) -> Finding:
    """Row 11: routed / LLM alone, both on the engine with CUDA graphs, against their bytes.

    The details also compare each of the two with itself without graphs.
    """
    requests = subject.requests(1)
    timed = race(f"graphs, {subject.name}", _graph_methods(subject, requests))
    gain, predicted = timed.ratio("routed", "LLM"), prediction_by_bytes(subject, requests)
    details = {"gain": gain, "bytes predict": predicted}
    for name in ("routed", "LLM"):
        details[f"{name}, graphs / launched"] = timed.ratio(name, f"{name} launched")
    return Finding(
        11,
        "routed at 20 % / LLM, both by the engine / bytes' prediction",
        subject.name,
        gain / predicted,
        Target("≥", 0.85),
        details | timed.details(),
    )


def _graph_methods(subject: Subject, requests: Sequence[Request]) -> dict[str, Method]:
    """Return both methods with CUDA graphs, and both with kernels launched one by one."""
    policies = {"routed": subject.policy(FRACTION), "LLM": LLM_ALONE}
    methods: dict[str, Method] = {}
    for suffix, make_graphs in {"": cuda_graphs, " launched": no_graphs}.items():
        engine = Engine(subject.pair, 1, subject.new_tokens, make_graphs=make_graphs)
        for name, policy in policies.items():
            methods[f"{name}{suffix}"] = partial(decode, engine, requests, policy)
    return methods


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


def against_naive(subject: Subject) -> Finding:
    """Row 4: eight answers of `NAIVE_TOKENS`, in one batch / one by one in the naive way."""
    requests, policy = subject.requests(8), subject.policy(FRACTION)
    engine = Engine(subject.pair, 8, NAIVE_TOKENS)

    def naively() -> int:
        return sum(
            len(naive.decode(subject.pair, request, policy, NAIVE_TOKENS)) for request in requests
        )

    timed = race(
        f"naive, {subject.name}",
        {"routed": partial(decode, engine, requests, policy), "naive": naively},
    )
    what = f"routed, batch 8 / naive, {NAIVE_TOKENS} new tokens"
    return of_two(4, what, subject.name, timed, Target("≥", 5))


def against_batches(subject: Subject, batch: int) -> list[Finding]:
    """Row 5: routing at several LLM fractions, delayed or not / the faster LLM alone."""
    timed = race(f"batch {batch}, {subject.name}", _batch_methods(subject, batch))
    return [_gain(subject.name, batch, how, timed) for how in ("undelayed", "delayed")]


def _batch_methods(subject: Subject, batch: int) -> dict[str, Method]:
    pair, new_tokens, requests = subject.pair, subject.new_tokens, subject.requests(batch)
    engine = Engine(pair, batch, new_tokens)
    delayed = Engine(pair, batch, new_tokens, delayed=True)
    methods: dict[str, Method] = {
        "LLM generate": partial(generate, pair, pair.local_llm, requests, batch, new_tokens),
        "LLM": partial(decode, engine, requests, LLM_ALONE),
    }
    for how, decoder in {"undelayed": engine, "delayed": delayed}.items():
        for fraction in FRACTIONS:
            policy = subject.policy(fraction)
            methods[f"{how} {fraction:g}"] = partial(decode, decoder, requests, policy)
    return methods


def _gain(name: str, batch: int, how: str, timed: Race) -> Finding:
    best = max("LLM generate", "LLM", key=timed.speed)
    gains = {fraction: timed.ratio(f"{how} {fraction:g}", best) for fraction in FRACTIONS}
    details = {f"at {fraction:.0%}": gain for fraction, gain in gains.items()}
    details["pays below LLM fraction"] = crossover(FRACTIONS, list(gains.values()))
    details |= {f"{alone} tokens/s": timed.speed(alone) for alone in ("LLM", "LLM generate")}
    return Finding(
        5,
        f"routed at 20 % / LLM alone, batch {batch}, {how}",
        name,
        gains[FRACTION],
        Target(">", 1) if how == "delayed" else None,
        details,
    )


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
