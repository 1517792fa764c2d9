"""What rules save in bytes and in seconds, answer by answer, for one client or a full batch.

    python -m benchmarks.untrained --rule "risk 0.7 audit 1" --rule "every 6 audit 1"

Without `--router`, a rule cannot ask a trained head. The pair and its prompts are those of
params.yaml; the questions are test questions of the last `citer prepare`, `references.most` of
them at most. Each question is answered in turn, one at a time, by the LLM alone, by each rule, and
by transformers: `generate` with the LLM, with the SLM as its assistant, and with prompt lookup.
With `--batch`, so many questions are answered at once, by our engine alone. Writes the results
after each batch, by default `benchmarks/results/untrained.{json,md}`. The same command continues
there, also with more questions; on another machine, or with another pair or rule, it begins again.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product, starmap, takewhile
from operator import eq
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

from benchmarks.exact import asked
from benchmarks.pairs import generated
from benchmarks.report import RESULTS, command, machine, markdown, write_results
from citer.cli.answers import parse_rule
from citer.config.params import Params, load_params
from citer.data.problems import Problem
from citer.data.tasks.grading import assess
from citer.decoding.engine import Engine
from citer.decoding.policy import LLM_ALONE, SLM_ALONE, Policy, routed, weight_bytes
from citer.errors import InputError
from citer.evaluation.cost import Prices
from citer.evaluation.metrics import interval, resamples
from citer.evaluation.sweep import request
from citer.models.bundle import read_bundle
from citer.models.device import resolve_device
from citer.models.folder import ModelFolder
from citer.models.pair import Pair, load_model, load_pair
from citer.models.router import Router
from citer.rule import Rule
from citer.serving.untrained import certain
from citer.stages import paths
from citer.stages.folders import base_pair, base_slm
from citer.storage.tables import digest, read_json

LLM, COPIED = "LLM alone", 10  # tokens that a prompt lookup of transformers copies at most
WARM_UP = 3  # batches

Answers = list[tuple[int, ...]]  # token ids


class Measured(NamedTuple):
    """The answers to a batch by a method."""

    seconds: float
    moved: float | None  # bytes; None for transformers
    tokens: int
    right: int
    same: int  # answers that are the LLM's own text


Batch = tuple[list[str], dict[str, Measured]]  # the ids of its questions, and by method
Method = Callable[[Sequence[Problem]], tuple[Answers, float | None]]


def race(
    params: Params,
    rules: Sequence[Rule],
    questions: int,
    batch: int,
    bundle: Path | None,
    target: Path,
) -> None:
    """Answer the questions by all methods in turn, and write what was measured so far.

    Raises InputError if the bundle's router lacks a rule's head, or if no question has an answer.
    """
    device = resolve_device(params.pair.device)
    router = read_bundle(bundle)[0].to(device) if bundle else Router({})
    asking = {f"{rule:.4g}": rule if router.heads else certain(rule) for rule in rules}
    policies = {name: routed(router, rule) for name, rule in asking.items()}
    graded = [each for each in asked(params, "test") if each.answer is not None][:questions]
    if not graded:
        raise InputError(f"{paths.problems('test')}: no question has an answer; expected some")
    batches = [graded[start : start + batch] for start in range(0, len(graded), batch)]
    pair = load_pair(base_pair(params), params.pair)
    methods = dict(_methods(pair, params, policies, batch))
    made_for = _made_for(pair, params, methods, bundle)
    found = _known(target.with_suffix(".json"), made_for, batches)
    if len(found) == len(batches):
        print(f"{target}.json has all of these questions; delete it to measure again")
        return
    for problems, method in product(batches[:WARM_UP], methods.values()):
        method(problems)  # the first answers also load and pack, and capture CUDA graphs
    for problems in batches[len(found) :]:
        found.append((_ids(problems), dict(_measured(pair, methods, problems))))
        about = {"batch": batch, "slm_weights": params.pair.slm_weights, "made_for": made_for}
        _write(target, about, found)


def _write(target: Path, about: Mapping[str, Any], found: Sequence[Batch]) -> None:
    by_method = {name: [own[name] for _, own in found] for name in found[0][1]}
    rows = [row(name, own, by_method[LLM]) for name, own in by_method.items()]
    number = sum(len(ids) for ids, _ in found)
    content = {"questions": number, **about, "machine": machine()}
    note = f"{number} questions, {about['batch']} at a time, SLM weights {about['slm_weights']}."
    text = f"{note}\n\n{markdown(rows)}"
    write_results(target, content | {"methods": rows, "measured": found}, text)


def _made_for(pair: Pair, params: Params, methods: Iterable[str], bundle: Path | None) -> str:
    """Return the digest of all but the questions on which a race's figures depend."""
    stable = {name: value for name, value in machine().items() if name != "date"}
    settings = json.dumps([pair.identity, params.decode.model_dump(), stable, [*methods]])
    return digest(settings, *([bundle] if bundle else []))


def _known(path: Path, made_for: str, batches: Sequence[Sequence[Problem]]) -> list[Batch]:
    """Return what an earlier race has measured of the first batches."""
    known = read_json(path) if path.exists() else {}
    if known.get("made_for") != made_for:
        return []
    pairs = zip(known["measured"], map(_ids, batches), strict=False)
    same = takewhile(lambda pair: pair[0][0] == pair[1], pairs)
    return [(ids, {name: Measured(*each) for name, each in own.items()}) for (ids, own), _ in same]


def _ids(problems: Sequence[Problem]) -> list[str]:
    return [each.problem_id for each in problems]


def _measured(
    pair: Pair, methods: Mapping[str, Method], problems: Sequence[Problem]
) -> Iterator[tuple[str, Measured]]:
    """Answer a batch by each method, the LLM alone first."""
    by_llm: Answers = []
    for name, method in methods.items():
        start = perf_counter()
        answers, moved = method(problems)
        seconds = perf_counter() - start
        by_llm = by_llm or answers
        right = sum(starmap(partial(_right, pair), zip(problems, answers, strict=True)))
        same = sum(starmap(eq, zip(answers, by_llm, strict=True)))
        yield name, Measured(seconds, moved, sum(map(len, answers)), right, same)


def _right(pair: Pair, problem: Problem, token_ids: Sequence[int]) -> bool:
    ended = token_ids[-1] in pair.eos_ids
    return ended and bool(assess(problem, pair.text(token_ids)).correct)


def _methods(
    pair: Pair, params: Params, policies: Mapping[str, Policy], batch: int
) -> Iterator[tuple[str, Method]]:
    most = params.decode.max_new_tokens
    for name, policy in {LLM: LLM_ALONE, **policies, "SLM alone": SLM_ALONE}.items():
        # An engine for each, since another policy's scorer would drop its CUDA graphs.
        yield name, partial(_decoded, Engine(pair, batch, most), policy)
    if batch > 1:
        return
    by = partial(_generated, pair, most)
    stored = ModelFolder(Path(params.pair.slm), base_slm(params).settings)
    assistant = load_model("slm", stored, params.pair)
    yield "`generate`", partial(by, {})
    yield "assisted generation", partial(by, {"assistant_model": assistant.network})
    yield "prompt lookup", partial(by, {"prompt_lookup_num_tokens": COPIED})


def _decoded(engine: Engine, policy: Policy, problems: Sequence[Problem]) -> tuple[Answers, float]:
    prices = Prices.of(engine.pair, weight_bytes(policy.scorer))
    before = prices.moved(engine.slm_work, engine.llm_work)
    decoded = engine.decode([request(problem, engine.pair) for problem in problems], policy)
    answers = {answer.key: answer.token_ids for answer in decoded}
    moved = prices.moved(engine.slm_work, engine.llm_work) - before
    return [answers[problem.problem_id] for problem in problems], moved


def _generated(
    pair: Pair, new_tokens: int, options: Mapping[str, Any], problems: Sequence[Problem]
) -> tuple[Answers, None]:
    prompts = [pair.prompts.prompt_ids(problem) for problem in problems]
    return [generated(pair, pair.local_llm, ids, new_tokens, **options) for ids in prompts], None


def row(name: str, own: Sequence[Measured], llm: Sequence[Measured]) -> dict[str, Any]:
    """Compare a method with the LLM alone: sums over batches, the latter's being 1."""
    drawn_RQ = resamples(np.ones(len(own)))
    seconds = (drawn_RQ @ [[a.seconds, b.seconds] for a, b in zip(own, llm, strict=True)]).T
    moved = [sum(each.moved or 0 for each in answers) for answers in (own, llm)]
    return {
        "method": name,
        "bytes": moved[0] / moved[1] if moved[0] else None,
        "seconds": interval(seconds[0] / seconds[1]),
        "tokens": sum(each.tokens for each in own),
        "right": sum(each.right for each in own),
        "the LLM's text": sum(each.same for each in own),
    }


def main(
    rule: Annotated[list[str], typer.Option()],
    questions: Annotated[int, typer.Option(min=1)] = 24,
    batch: Annotated[int, typer.Option(min=1, help="Questions at once.")] = 1,
    router: Annotated[Path | None, typer.Option(help="The bundle whose heads rules ask.")] = None,
    name: Annotated[str, typer.Option(help="Of the files of results.")] = "untrained",
) -> None:
    """Race rules against the LLM alone, and against transformers."""
    rules = [parse_rule(each) or LLM_ALONE.rule for each in rule]
    race(load_params(), rules, questions, batch, router, RESULTS / name)


if __name__ == "__main__":
    command(main)
