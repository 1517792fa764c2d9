"""Make the preference labels of iteration k. Rollouts run under router k - 1."""

import functools
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from rich.table import Table

from citer.config.params import Params
from citer.data.problems import Problem, read_problems
from citer.data.prompts import Encoded
from citer.data.references import sources
from citer.data.tasks.grading import failures
from citer.data.tokens import read_identity, read_tokens
from citer.decoding.engine import Engine
from citer.decoding.policy import routed
from citer.executors.base import Executor
from citer.labelling.contests import by_row
from citer.labelling.labeller import Labeller, Rollout, label_in_chunks
from citer.labelling.suffix import Calibration, Suffix, calibrate
from citer.models.bundle import check_identity, read_bundle
from citer.models.folder import PairFolder
from citer.models.outlined import open_pair
from citer.models.pair import Pair
from citer.models.room import check_examples
from citer.models.router import Router
from citer.progress import say, warn
from citer.stages import paths
from citer.stages.folders import finetuned_pair
from citer.storage.code import code_digest
from citer.storage.schema import CASES, PREFERENCE
from citer.storage.tables import digest, partial_dir, remove, write_table


class Inputs(NamedTuple):
    """The inputs that are read and checked before any model is loaded.

    `methods` decide contested tokens: rollout, suffix, or both, joined by "+".
    """

    methods: str
    folders: PairFolder
    identity: dict[str, Any]
    router: Router
    problems: Mapping[str, Problem]
    examples: Mapping[str, Encoded]
    tokens: pa.Table


def run(params: Params, iteration: int) -> None:
    """Label the tokens of the preference split. A killed run resumes at its unfinished chunk."""
    inputs = _read(params, iteration)
    pair, executor = open_pair(inputs.folders, params.pair, params.workers)
    partial = partial_dir("label", _digest(params, iteration))
    labeller, calibration = _labeller(executor, inputs, pair, params, iteration, partial)
    labels = label_in_chunks(executor, labeller, inputs.tokens, partial)
    graded = zip(*(labels[name].to_pylist() for name in ("problem_id", "failure")), strict=True)
    failed = failures((inputs.problems[key].task, key, failure) for key, failure in graded)
    metadata = _metadata(inputs, params, iteration, calibration)
    if failed:
        metadata["failed_grades"] = {each.task: each.answers for each in failed}
    write_table(paths.preferences(iteration), labels, PREFERENCE, metadata)
    remove(partial)
    say(_summary(labeller, inputs.tokens, labels))
    for line in filter(None, (calibration, *failed)):
        say(str(line))
    if pc.min(labels["label"]).as_py() == 1:
        warn(f"label {iteration}: all labels are 1: a router learns from them never to ask the LLM")


def _metadata(
    inputs: Inputs, params: Params, iteration: int, calibration: Calibration | None
) -> dict[str, Any]:
    metadata = inputs.identity | {
        "iteration": iteration,
        "router": digest(paths.router(iteration - 1)),
        "rule": str(params.label.rule),
        "labels": {
            "references": sources(inputs.problems.values()),
            "outcome": inputs.methods,
            "margin": calibration and calibration.margin,
        },
    }
    if calibration and calibration.rolled_out:
        metadata["calibration"] = calibration._asdict()
    return metadata


def _read(params: Params, iteration: int) -> Inputs:
    """Read and compare tokens, problems, router k - 1 and models. Raises InputError."""
    origin = paths.router(iteration - 1)
    identity = read_identity(paths.SLM_TOKENS, paths.LLM_TOKENS)
    router, card = read_bundle(origin)
    check_identity(card, identity, origin)
    problems = {p.problem_id: p for p in read_problems(paths.referenced("preference"))}
    folders = finetuned_pair(params)
    check_identity(identity, folders.identity(params.pair.dtype), paths.SLM_TOKENS)
    examples = folders.prompts.encode_all(problems.values())
    check_examples(examples, folders.context, params.decode.max_new_tokens)
    tokens = read_tokens(paths.SLM_TOKENS, paths.LLM_TOKENS, examples)
    methods = _methods(params, problems.values())
    return Inputs(methods, folders, identity, router, problems, examples, tokens)


def _labeller(
    executor: Executor, inputs: Inputs, pair: Pair, params: Params, iteration: int, partial: Path
) -> tuple[Labeller, Calibration | None]:
    """Return the labeller, and if it needs `suffix` the calibration of its margin."""
    limits = params.decode
    engine = Engine(pair, limits.slots, limits.max_new_tokens, delayed=True)
    rollout = Rollout(engine, routed(inputs.router.to(pair.slm.device), params.label.rule))
    labeller = Labeller(inputs.problems, inputs.examples, rollout, iteration, pair.is_slow)
    if inputs.methods == "rollout":
        return labeller, None
    suffix = Suffix(pair, limits.slots, margin=inf)  # reads all endings that may count
    by_suffix = replace(labeller, method=suffix)
    calibration = calibrate(executor, by_suffix, rollout, inputs.tokens, partial)
    suffix = replace(suffix, margin=calibration.margin)
    method = (
        suffix if params.label.method == "suffix" else functools.partial(by_row, rollout, suffix)
    )
    return replace(labeller, method=method), calibration


def _methods(params: Params, problems: Iterable[Problem]) -> str:
    """Return how contested tokens are decided, by what `label.method` asks and rows have."""
    if params.label.method != "auto":
        return params.label.method
    used = {"suffix" if problem.answer is None else "rollout" for problem in problems}
    return "+".join(sorted(used))


def _digest(params: Params, iteration: int) -> str:
    files = paths.SLM_TOKENS, paths.LLM_TOKENS, paths.referenced("preference")
    router = paths.router(iteration - 1)
    settings = params.model_dump_json(include={"pair", "label", "decode"})
    return digest(*files, router, str(iteration), settings, code_digest("label"))


def _summary(labeller: Labeller, tokens: pa.Table, labels: pa.Table) -> Table:
    """Count the cases of the tokens, the labels by what decided them, and the labels 1."""
    cases = labeller.cases(tokens).tolist()
    counts = Counter({case: cases.count(case) for case in CASES})
    decided = Counter(labels["origin"].to_pylist())
    counts |= {f"labels by {origin}": decided[origin] for origin in ("rollout", "suffix")}
    counts["labelled 1"] = pc.sum(labels["label"]).as_py()
    table = Table(f"label {labeller.iteration}", title="Preference labels")
    for heading in ("tokens", "share"):
        table.add_column(heading, justify="right")
    for name, count in (+counts).items():  # those that are not 0
        table.add_row(name, f"{count:,}", f"{count / len(tokens):.1%}")
    return table
