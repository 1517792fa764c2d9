"""Finetune the SLM: data/references/sft.parquet → data/models/slm, data/models/finetune.json."""

from citer.config.params import Params
from citer.data.problems import read_problems
from citer.progress import say
from citer.stages import paths
from citer.stages.folders import base_slm
from citer.storage.tables import write_json
from citer.training.sft import finetune


def run(params: Params) -> None:
    """Finetune and print the losses. Raises InputError if model, rows or parameters do not fit."""
    base = base_slm(params)
    base.check()
    problems = read_problems(paths.referenced("sft"))
    losses = finetune(base, problems, paths.SLM, params.pair, params.finetune, params.seed)
    write_json(paths.FINETUNE, {"step": [*range(1, len(losses) + 1)], "loss": losses})
    summary = "no epochs, the SLM is copied"
    if losses:
        summary = f"loss {losses[0]:.3f} at the first step, {losses[-1]:.3f} at step {len(losses)}"
    say(f"finetune: {summary}")
