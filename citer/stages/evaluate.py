"""Answer the held-out, validation and test questions by every rule of router k."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from citer.config.params import Params
from citer.errors import InputError
from citer.evaluation.points import RIVALS_STAMP, ROUTER_STAMP, read_findings, write_findings
from citer.evaluation.study import Study
from citer.models.bundle import check_identity, read_bundle
from citer.models.device import announce
from citer.models.outlined import open_pair
from citer.stages import paths
from citer.stages.asked import Asked, partial_sweeps
from citer.storage.tables import remove, replacing


def run(params: Params, iteration: int) -> None:
    """Write the answers by router k. A killed run resumes at its unfinished part of the questions.

    They depend neither on epsilon nor on delta: `choose` judges them.
    Raises InputError unless router, rivals and questions belong to the same study.
    """
    announce(f"evaluate {iteration}", params.pair)
    origin = paths.router(iteration)
    router, card = read_bundle(origin)
    taus = _thresholds(origin, card, params.evaluate.llm_fractions)
    asked = Asked.read(params)
    check_identity(card, asked.identity, origin)
    rivals = read_findings(paths.RIVALS, params.evaluate, asked.stamp | RIVALS_STAMP)
    holdout = asked.held_out(params.seed, params.train.holdout, params.decode)
    keys = (problem.problem_id for problem in holdout)
    partial = partial_sweeps("evaluate", params, asked.identity, origin, *keys, iteration=iteration)
    pair, executor = open_pair(asked.folders, params.pair, params.workers)
    questions, settings = (asked.validation, asked.test), (params.evaluate, params.decode)
    study = Study(executor, pair, *questions, *settings, params.seed, partial, holdout)
    findings = study.router(router.to(pair.slm.device), taus, rivals)
    with replacing(paths.answers(iteration)) as aside:
        aside.mkdir()
        write_findings(aside, findings, params.evaluate, asked.stamp | ROUTER_STAMP)
    remove(partial)


def _thresholds(folder: Path, card: dict[str, Any], fractions: Sequence[float]) -> list[float]:
    """Interpolate τ at the target LLM fractions from the holdout scores in the card."""
    if not (known := card.get("holdout_scores")):
        missing = "no `holdout_scores`, expected the thresholds to try"
        raise InputError(f"{folder}/router.json: {missing}")
    taus = np.interp(fractions, [float(fraction) for fraction in known], list(known.values()))
    return np.unique(taus).tolist()
