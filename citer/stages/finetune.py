"""Finetune the SLM: data/problems/sft.parquet → data/models/slm."""

from pathlib import Path

from rich.console import Console

from citer.config import Params
from citer.data.problems import read_problems
from citer.finetune.sft import finetune
from citer.models.folder import ModelFolder
from citer.stages import paths


def run(params: Params) -> None:
    """Raises InputError where the model, the rows or the parameters do not fit."""
    base = ModelFolder(Path(params.pair.slm))
    base.check()
    problems = read_problems(paths.problems("sft"))
    losses = finetune(base, problems, paths.SLM, params.pair, params.finetune)
    said = "the SLM as it is"
    if losses:
        said = f"loss {losses[0]:.3f} at the first step, {losses[-1]:.3f} at step {len(losses)}"
    Console().print(f"finetune: {said}")
