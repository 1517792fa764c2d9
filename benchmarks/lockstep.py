"""Compare lockstep drafting with the engine's delay, by replay of the same answers.

    python -m benchmarks.lockstep       # after `citer run`

Writes `benchmarks/results/lockstep.{json,md}`: bytes moved at several sizes of the pair, relative
to the LLM alone inside vLLM. Row 14 of `citer bench` has seconds, from measured forwards.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TextIO

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.floor import Floor, Forward
from benchmarks.pairs import Subject, embedded
from benchmarks.race import race
from benchmarks.report import Finding, Target
from citer.config.params import load_params
from citer.data.problems import read_problems
from citer.decoding.answer import Request, Work
from citer.decoding.engine import Engine
from citer.decoding.policy import LLM_ALONE, Policy, always_slm, head_for, routed
from citer.evaluation.cost import AT_ONCE, DELAYED, Prices, Schedule, Trace
from citer.evaluation.lockstep import CAPS, Lockstep, best_cap
from citer.evaluation.methods import Row
from citer.evaluation.rivals import low_entropy
from citer.evaluation.sweep import request
from citer.models.bundle import read_bundle
from citer.models.pair import load_pair
from citer.models.router import Router
from citer.rule import Rule
from citer.stages import paths
from citer.stages.folders import finetuned_pair
from citer.storage.tables import read_json, replacing, write_json

RESULTS = Path("benchmarks/results")
SLOTS = (1, 8, 32)
EXACT = Rule("risk", 0.4, 1)
EXACT_ENTROPY = Rule("risk", 0.8, 1)
QUORUM = 0.5
# Qwen2.5 in bf16, without the router: bytes of the weights, and of a position's keys and values.
SIZES = {"0.5B": (0.99e9, 12_288), "1.5B": (3.09e9, 28_672), "7B": (15.2e9, 57_344)}
SIZES |= {"72B": (145.4e9, 327_680)}
PAIRS = (("0.5B", "1.5B"), ("1.5B", "7B"), ("1.5B", "72B"))
TOKENS = (1, 9, 17, 33)  # new tokens per row of the LLM's timed forwards
CACHED = 192  # tokens per row before them

Price = Callable[[Work, Work], float]


def schedules() -> dict[str, Schedule]:
    """Return the schedules to compare."""
    caps: dict[str, Schedule] = {f"lockstep {cap}": Lockstep(cap) for cap in CAPS}
    quorum = {f"quorum {QUORUM:g}": Lockstep(max(CAPS), QUORUM)}
    return {"at once": AT_ONCE, "delayed": DELAYED, **caps, **quorum}


def traces(engine: Engine, requests: Sequence[Request], policy: Policy) -> list[Trace]:
    """Decode the requests. Return their traces in the order in which a server would get them.

    The engine gives short answers first; batches of answers of one length would cost less.
    """
    answers = {answer.key: answer for answer in engine.decode(requests, policy)}
    ordered = ((each, answers[each.key]) for each in requests)
    return [
        Trace.of(len(each.prompt_ids), len(answer.token_ids), answer.visits)
        for each, answer in ordered
    ]


def costs(routed: Sequence[Trace], alone: Sequence[Trace], slots: int, price: Price) -> Row:
    """Return the cost of each schedule, relative to the LLM alone in vLLM's rounds."""
    whole = price(*Lockstep(1).work(alone, slots))
    return {name: price(*each.work(routed, slots)) / whole for name, each in schedules().items()}


def sized() -> Mapping[str, Prices]:
    return {
        f"{slm}:{llm}": Prices(*(int(SIZES[size][n]) for n in (0, 1) for size in (slm, llm)))
        for slm, llm in PAIRS
    }


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
        details = {"best cap": cap, **cost}
        target = Target(">", 1) if subject.name == "gpu" else None
        findings.append(Finding(14, what, subject.name, value, target, details))
    return findings


def seconds_of(subject: Subject, rows: int) -> Price:
    """Measure forwards of `rows` rows. Return the price of work in seconds."""
    shapes = [_shape("slm", rows, 1), *(_shape("llm", rows, tokens) for tokens in TOKENS)]
    floors = {str(shape): Floor(subject.pair, subject.head, [shape]) for shape in shapes}
    title = f"lockstep, {subject.name}, batch {rows}"
    timed = race(title, {name: partial(_once, floor) for name, floor in floors.items()})
    step, *visits = (1 / timed.speed(name) for name in floors)
    positions = [rows * tokens for tokens in TOKENS]

    def price(slm: Work, llm: Work) -> float:
        visit = np.interp(llm.positions / max(llm.forwards, 1), positions, visits)
        return slm.forwards * step + llm.forwards * float(visit)

    return price


def _shape(model: str, rows: int, tokens: int) -> Forward:
    return Forward(model, (CACHED,) * rows, (tokens,) * rows, (tokens,) * rows)


def _once(floor: Floor) -> int:
    floor.run()
    return 1


def study() -> Iterator[Row]:
    """Yield a row for each method, pair and batch size. Speculative decoding has its best γ."""
    params = load_params()
    pair, last = load_pair(finetuned_pair(params), params.pair), max(map(int, params.iterations))
    router, _ = read_bundle(paths.router(last))
    engine = Engine(pair, params.evaluate.slots, params.evaluate.max_new_tokens, delayed=True)
    requests = [request(problem, pair) for problem in read_problems(paths.referenced("test"))]
    alone = traces(engine, requests, LLM_ALONE)
    for name, weights, policies in _methods(router, last, params.evaluate.gammas):
        answered = [traces(engine, requests, policy) for policy in policies]
        for size, prices in {"embedded": Prices.of(pair, weights), **sized()}.items():
            for slots in SLOTS:
                where = {"rule": name, "pair": size, "batch": slots}
                tried = [costs(each, alone, slots, prices.moved) for each in answered]
                yield where | {key: min(cost[key] for cost in tried) for key in tried[0]}


def _methods(
    router: Router, last: int, gammas: Sequence[int]
) -> Iterator[tuple[str, int, list[Policy]]]:
    """Yield a name, the bytes of the scorer, and the policies of which each schedule has the best.

    These are the chosen rules and an exact one of the router, an exact one by entropy, and
    speculative decoding.
    """
    chosen = read_json(paths.report(last) / "chosen.json").values()
    for rule in (*(Rule(**each["rule"]) for each in chosen), EXACT):
        yield f"{rule:.4g}", head_for(router, rule).weight_bytes, [routed(router, rule)]
    yield f"entropy, {EXACT_ENTROPY}", 0, [Policy(low_entropy, EXACT_ENTROPY)]
    yield "every γ audit 1, best γ", 0, [Policy(always_slm, Rule("every", g, 1)) for g in gammas]


def write(rows: Sequence[Row], file: TextIO) -> None:
    table = Table(*rows[0], box=box.MARKDOWN)
    for row in rows:
        cells = (
            f"{value:.3f}" if isinstance(value, float) else str(value) for value in row.values()
        )
        table.add_row(*cells)
    Console(file=file, width=220).print(table)


def main() -> None:
    rows = list(study())
    write_json(RESULTS / "lockstep.json", rows)
    with replacing(RESULTS / "lockstep.md") as aside, aside.open("w") as file:
        write(rows, file)
    print((RESULTS / "lockstep.md").read_text())


if __name__ == "__main__":
    main()
