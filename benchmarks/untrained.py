"""What an untrained pair saves: bytes and seconds of rules that ask no head, answer by answer.

    python -m benchmarks.untrained --rule "risk 0.7 audit 1" --rule "every 6 audit 1"

The pair and its prompts are those of params.yaml; the questions are test questions of the last
`citer prepare`. Each question is answered in turn, one at a time, by the LLM alone, by each rule,
and by transformers: `generate` with the LLM, with the SLM as its assistant, and with prompt lookup.
Writes `benchmarks/results/untrained.{json,md}` after each question. A killed race begins again.
"""

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

from benchmarks.pairs import generated
from benchmarks.report import RESULTS, machine, markdown, write_results
from citer.cli.answers import parse_rule
from citer.config.params import Params, load_params
from citer.data.problems import Problem, read_problems, seeded
from citer.data.tasks.grading import assess
from citer.decoding.engine import Engine
from citer.decoding.policy import LLM_ALONE, SLM_ALONE, Policy, head_name, routed
from citer.errors import InputError
from citer.evaluation.cost import Prices, Trace
from citer.evaluation.metrics import interval, resamples
from citer.evaluation.sweep import request
from citer.models.folder import ModelFolder
from citer.models.pair import Pair, load_model, load_pair
from citer.models.router import Router
from citer.rule import Rule
from citer.serving.untrained import certain
from citer.stages import paths
from citer.stages.folders import base_pair, base_slm

LLM, COPIED = "LLM alone", 10  # tokens that a prompt lookup of transformers copies at most


class Measured(NamedTuple):
    """An answer to a question: `moved` bytes are None for transformers."""

    token_ids: tuple[int, ...]
    seconds: float
    moved: int | None
    right: bool


Answer = Callable[[Problem], tuple[tuple[int, ...], int | None]]


def race(params: Params, rules: Sequence[Rule], questions: int) -> None:
    """Answer the questions by all methods in turn, and write what was measured so far."""
    for rule in rules:
        head_name((), certain(rule))  # raises if it asks a trained head
    asked = _asked(params, questions)
    pair = load_pair(base_pair(params), params.pair)
    methods = dict(_methods(pair, params, rules))
    for method in methods.values():
        method(asked[0])  # the first answer also loads and packs
    found: dict[str, list[Measured]] = defaultdict(list)
    for number, problem in enumerate(asked, 1):
        for name, method in methods.items():
            start = perf_counter()
            token_ids, moved = method(problem)
            seconds, ended = perf_counter() - start, token_ids[-1] in pair.eos_ids
            right = ended and bool(assess(problem, pair.text(token_ids)).correct)
            found[name].append(Measured(token_ids, seconds, moved, right))
        rows = [row(name, own, found[LLM]) for name, own in found.items()]
        about = {"questions": number, "slm_weights": params.pair.slm_weights, "machine": machine()}
        note = f"{number} questions, one at a time, SLM weights {params.pair.slm_weights}."
        content = about | {"methods": rows}
        write_results(RESULTS / "untrained", content, f"{note}\n\n{markdown(rows)}")


def _asked(params: Params, questions: int) -> list[Problem]:
    """Return some test questions with answers, chosen by the seed. Raises InputError."""
    path = paths.problems("test")
    problems = [problem for problem in read_problems(path) if problem.answer is not None]
    if not problems:
        raise InputError(f"{path}: no question has an answer; expected some to grade by")
    return sorted(problems, key=lambda each: seeded(each.problem_id, params.seed))[:questions]


def _methods(pair: Pair, params: Params, rules: Sequence[Rule]) -> Iterator[tuple[str, Answer]]:
    engine = Engine(pair, 1, params.decode.max_new_tokens)
    yield LLM, partial(_decoded, engine, LLM_ALONE)
    for rule in rules:
        yield f"{rule:.4g}", partial(_decoded, engine, routed(Router({}), certain(rule)))
    yield "SLM alone", partial(_decoded, engine, SLM_ALONE)
    by = partial(_generated, pair, params.decode.max_new_tokens)
    stored = ModelFolder(Path(params.pair.slm), base_slm(params).settings)
    assistant = load_model("slm", stored, params.pair)
    yield "`generate`", partial(by, {})
    yield "assisted generation", partial(by, {"assistant_model": assistant.network})
    yield "prompt lookup", partial(by, {"prompt_lookup_num_tokens": COPIED})


def _decoded(engine: Engine, policy: Policy, problem: Problem) -> tuple[tuple[int, ...], int]:
    asked = request(problem, engine.pair)
    [answer] = engine.decode([asked], policy)
    trace = Trace.of(len(asked.prompt_ids), len(answer.token_ids), answer.visits)
    return answer.token_ids, Prices.of(engine.pair).moved(trace.slm, trace.llm)


def _generated(
    pair: Pair, new_tokens: int, options: Mapping[str, Any], problem: Problem
) -> tuple[tuple[int, ...], None]:
    ids = pair.prompts.prompt_ids(problem)
    return generated(pair, pair.local_llm, ids, new_tokens, **options), None


def row(name: str, own: Sequence[Measured], llm: Sequence[Measured]) -> dict[str, Any]:
    """Compare a method with the LLM alone: sums over questions, the latter's being 1."""
    drawn_RQ = resamples(np.ones(len(own)))
    seconds = (drawn_RQ @ [[a.seconds, b.seconds] for a, b in zip(own, llm, strict=True)]).T
    moved = [sum(each.moved or 0 for each in answers) for answers in (own, llm)]
    return {
        "method": name,
        "bytes": moved[0] / moved[1] if moved[0] else None,
        "seconds": interval(seconds[0] / seconds[1]),
        "tokens": sum(len(each.token_ids) for each in own),
        "right": sum(each.right for each in own),
        "the LLM's text": sum(a.token_ids == b.token_ids for a, b in zip(own, llm, strict=True)),
    }


def main(
    rule: Annotated[list[str], typer.Option(help="A rule that needs no trained head.")],
    questions: Annotated[int, typer.Option(min=1)] = 24,
) -> None:
    """Race rules of an untrained pair against its LLM alone, and against transformers."""
    try:
        rules = [parse_rule(each) or LLM_ALONE.rule for each in rule]
        race(load_params(), rules, questions)
    except InputError as error:
        print(f"untrained: {error}", file=sys.stderr)
        raise typer.Exit(2) from None


if __name__ == "__main__":
    typer.run(main)
