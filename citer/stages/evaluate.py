"""Evaluate router k: validation chooses its rules, test reports them."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console

from citer.config import EvaluateParams, Params
from citer.data.holdout import held_out
from citer.data.problems import Problem, read_problems
from citer.decoding.policy import routed
from citer.errors import InputError
from citer.evaluation.choice import Chosen, cheapest
from citer.evaluation.decoded import transcript
from citer.evaluation.frontier import draw
from citer.evaluation.headline import deployed
from citer.evaluation.measure import Conditions, Measure
from citer.evaluation.points import (
    RIVALS_STAMP,
    ROUTER_STAMP,
    Findings,
    read_findings,
    write_findings,
)
from citer.evaluation.report import metrics, promise, standings
from citer.evaluation.sequence import explained
from citer.evaluation.spread import Seeded, Seeds, seeded
from citer.evaluation.study import Study, study_stamp
from citer.io import read_as, remove, replacing, write_json
from citer.models.bundle import check_identity, folder_identity, read_bundle
from citer.models.device import announce
from citer.models.folder import PairFolder
from citer.models.outlined import open_pair
from citer.models.room import check_room, with_room
from citer.models.router import Router
from citer.stages import paths
from citer.stages.folders import finetuned_pair
from citer.stages.unfinished import partial_sweeps


class _Inputs(NamedTuple):
    """The inputs that are read and compared before a model is loaded."""

    router: Router
    taus: Sequence[float]
    folders: PairFolder
    identity: dict[str, Any]
    validation: list[Problem]
    test: list[Problem]
    stamp: dict[str, Any]
    rivals: Findings
    seeds: Seeds

    @property
    def measure(self) -> Measure:
        return Conditions.stored(self.stamp).measure


def run(params: Params, iteration: int) -> None:
    """Write the report of router k. A killed run resumes at its unfinished part of the questions.

    Raises InputError unless router, rivals and questions belong to the same study.
    """
    announce(f"evaluate {iteration}", params.pair)
    inputs, home = _read(params, iteration), paths.seeds(iteration)
    holdout = _held_out(params, inputs.folders, inputs.seeds.router)
    asked = (problem.problem_id for problem in holdout)
    own = inputs.identity, paths.router(iteration), home
    partial = partial_sweeps("evaluate", params, *own, *asked, iteration=iteration)
    pair, executor = open_pair(inputs.folders, params.pair, params.workers)
    setting = executor, pair, inputs.validation, inputs.test, params.evaluate
    router = inputs.router.to(pair.slm.device)
    # Each seed and the transcript have an engine of their own, so that no study keeps its caches.
    findings, chosen, steps = Study(*setting, partial, holdout).router(
        router, inputs.taus, inputs.rivals
    )
    rows = standings([*inputs.rivals.points, *findings.points], chosen)
    seeds = [*seeded(inputs.seeds.router, rows, chosen, inputs.measure)]
    for seed in inputs.seeds.further:
        questions = _held_out(params, inputs.folders, seed)
        study = Study(*setting, partial / str(seed), questions)
        seeds += _further(study, home / str(seed), seed, inputs.rivals)
    method = deployed(chosen)
    policy = routed(router, chosen[method].rule)
    tokens = transcript(executor, pair, inputs.test, policy, method, params.evaluate)
    with replacing(paths.report(iteration)) as aside:
        _write(aside, inputs, findings, chosen, params.evaluate)
        promised = params.evaluate.epsilon, params.evaluate.delta
        write_json(aside / "path.json", explained(steps, *promised))
        write_json(aside / "tokens.json", asdict(tokens))
        if inputs.seeds.further:
            write_json(aside / paths.SPREAD, [asdict(each) for each in seeds])
    remove(partial)
    promises = (
        promise(f"{name}_{iteration}", rule, inputs.measure) for name, rule in chosen.items()
    )
    for line in (*promises, *map(str, findings.failures)):
        Console().print(line, markup=False, highlight=False, soft_wrap=True)


def _read(params: Params, iteration: int) -> _Inputs:
    folder = paths.router(iteration)
    router, card = read_bundle(folder)
    taus = _thresholds(folder, card, params.evaluate.llm_fractions)
    validation, test = (read_problems(paths.referenced(split)) for split in ("validation", "test"))
    named = ((f"{paths.referenced(p.split)}: problem {p.problem_id}", p) for p in validation + test)
    folders = finetuned_pair(params)
    check_room(named, folders, params.evaluate.max_new_tokens)
    own = folder_identity(folders, params.pair.dtype)
    check_identity(card, own, folder)
    stamp = study_stamp(own, [*validation, *test], params.evaluate)
    rivals = read_findings(paths.RIVALS, params.evaluate, stamp | RIVALS_STAMP)
    seeds = read_as(paths.seeds(iteration) / paths.TRAINED, Seeds)
    return _Inputs(router, taus, folders, own, validation, test, stamp, rivals, seeds)


def _write(
    folder: Path, inputs: _Inputs, findings: Findings, chosen: Chosen, params: EvaluateParams
) -> None:
    """Write the answers, the chosen rules, the metrics and the picture."""
    points = [*inputs.rivals.points, *findings.points]
    rows = standings(points, chosen)
    folder.mkdir()
    write_findings(folder, findings, params, inputs.stamp | ROUTER_STAMP)
    write_json(folder / "chosen.json", {name: asdict(each) for name, each in chosen.items()})
    write_json(folder / "threshold.json", asdict(cheapest(*chosen.values())))
    write_json(folder / "metrics.json", metrics(rows, chosen, inputs.measure))
    draw(points, chosen, folder / "frontier.png", inputs.measure)


def _further(study: Study, folder: Path, seed: int, rivals: Findings) -> Iterator[Seeded]:
    """Choose and measure rules with the router of a further seed, which is in `folder`."""
    router, card = read_bundle(folder)
    taus = _thresholds(folder, card, study.params.llm_fractions)
    findings, chosen, _ = study.router(router.to(study.pair.slm.device), taus, rivals)
    rows = standings([*rivals.points, *findings.points], chosen)
    yield from seeded(seed, rows, chosen, study.conditions.measure)


def _held_out(params: Params, folders: PairFolder, seed: int) -> list[Problem]:
    """Read the held-out questions of a seed that have room for an answer.

    They decide an order only.
    """
    rows = read_problems(paths.referenced("preference"))
    questions = held_out(rows, seed, params.train.holdout)
    return with_room(questions, folders.prompts, folders.context - params.evaluate.max_new_tokens)


def _thresholds(folder: Path, card: dict[str, Any], fractions: Sequence[float]) -> list[float]:
    """Interpolate τ at the target LLM fractions from the holdout scores in the card."""
    known = card.get("holdout_scores")
    if not known:
        raise InputError(
            f"{folder}/router.json: no `holdout_scores`, expected the thresholds to try"
        )
    taus = np.interp(fractions, [float(fraction) for fraction in known], list(known.values()))
    return np.unique(taus).tolist()
