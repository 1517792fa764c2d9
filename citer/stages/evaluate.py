"""Answer the held-out, validation and test questions by every rule of router k."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from citer.config.params import Params
from citer.data.holdout import held_out
from citer.data.problems import Problem, read_problems
from citer.errors import InputError
from citer.evaluation.points import (
    RIVALS_STAMP,
    ROUTER_STAMP,
    Findings,
    read_findings,
    write_findings,
)
from citer.evaluation.study import Study, study_stamp
from citer.models.bundle import check_identity, folder_identity, read_bundle
from citer.models.device import announce
from citer.models.folder import PairFolder
from citer.models.outlined import open_pair
from citer.models.room import check_room, with_room
from citer.models.router import Router
from citer.stages import paths
from citer.stages.folders import finetuned_pair
from citer.stages.unfinished import partial_sweeps
from citer.storage.tables import remove, replacing


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


def run(params: Params, iteration: int) -> None:
    """Write the answers by router k. A killed run resumes at its unfinished part of the questions.

    They depend neither on epsilon nor on delta: `choose` judges them.
    Raises InputError unless router, rivals and questions belong to the same study.
    """
    announce(f"evaluate {iteration}", params.pair)
    inputs = _read(params, iteration)
    holdout = _held_out(params, inputs.folders)
    asked = (problem.problem_id for problem in holdout)
    own = inputs.identity, paths.router(iteration)
    partial = partial_sweeps("evaluate", params, *own, *asked, iteration=iteration)
    pair, executor = open_pair(inputs.folders, params.pair, params.workers)
    questions = inputs.validation, inputs.test
    study = Study(executor, pair, *questions, params.evaluate, partial, holdout)
    findings = study.router(inputs.router.to(pair.slm.device), inputs.taus, inputs.rivals)
    with replacing(paths.answers(iteration)) as aside:
        aside.mkdir()
        write_findings(aside, findings, params.evaluate, inputs.stamp | ROUTER_STAMP)
    remove(partial)


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
    return _Inputs(router, taus, folders, own, validation, test, stamp, rivals)


def _held_out(params: Params, folders: PairFolder) -> list[Problem]:
    """Read the held-out questions that have room for an answer. They decide an order only."""
    rows = read_problems(paths.referenced("preference"))
    questions = held_out(rows, params.train.seed, params.train.holdout)
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
