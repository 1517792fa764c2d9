"""Compare lockstep drafting with the engine's delay, by replay of the same answers.

    python -m benchmarks.lockstep       # after `citer run`

Writes `benchmarks/results/lockstep.{json,md}`: bytes moved at several sizes of the pair, relative
to the LLM alone inside vLLM. Row 14 of `citer bench` has seconds, from measured forwards.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import typer

from benchmarks.report import RESULTS, markdown, write_results
from citer.config.params import load_params
from citer.data.problems import read_problems
from citer.decoding.answer import Request, Work
from citer.decoding.engine import Engine
from citer.decoding.policy import LLM_ALONE, Policy, always_slm, head_for, routed
from citer.evaluation.cost import AT_ONCE, DELAYED, Prices, Schedule, Trace
from citer.evaluation.lockstep import CAPS, Lockstep
from citer.evaluation.methods import Row
from citer.evaluation.rivals.untrained import low_entropy
from citer.evaluation.sweep import request
from citer.models.bundle import read_bundle
from citer.models.pair import load_pair
from citer.models.router import Router
from citer.rule import Rule
from citer.stages import paths
from citer.stages.folders import finetuned_pair
from citer.storage.tables import read_json

SLOTS = (1, 8, 32)
EXACT = Rule("risk", 0.4, 1)
EXACT_ENTROPY = Rule("risk", 0.8, 1)
QUORUM = 0.5
# Qwen2.5 in bf16, without the router: bytes of the weights, and of a position's keys and values.
SIZES = {"0.5B": (0.99e9, 12_288), "1.5B": (3.09e9, 28_672), "7B": (15.2e9, 57_344)}
SIZES |= {"72B": (145.4e9, 327_680)}
PAIRS = (("0.5B", "1.5B"), ("1.5B", "7B"), ("1.5B", "72B"))

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


def study() -> Iterator[Row]:
    """Yield a row for each method, pair and batch size. Speculative decoding has its best γ."""
    params = load_params()
    pair, last = load_pair(finetuned_pair(params), params.pair), max(map(int, params.iterations))
    router, _ = read_bundle(paths.router(last))
    engine = Engine(pair, params.decode.slots, params.decode.max_new_tokens, delayed=True)
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


def main() -> None:
    """Replay every schedule, and write the costs."""
    rows = list(study())
    write_results(RESULTS / "lockstep", rows, markdown(rows))


if __name__ == "__main__":
    typer.run(main)
