"""The stage finetune: the model, and beside it the loss of every step."""

import shutil

import pytest

from citer.config.params import Params
from citer.data.problems import read_problems
from citer.stages import finetune, paths
from citer.stages.folders import base_slm
from citer.storage.tables import digest, read_json
from citer.training.sft import finetune as train


@pytest.mark.parametrize("steps", [0, 3])
def test_the_loss_of_every_step_lies_beside_the_model(project: Params, steps: int) -> None:
    shutil.copy(paths.referenced("preference"), paths.referenced("sft"))
    problems = read_problems(paths.referenced("sft"))
    settings = {"batch_size": 2, "deepspeed": "off", "processes": 1}
    section = project.finetune.model_copy(update=settings | {"epochs": 2 * steps / len(problems)})
    params = project.model_copy(update={"finetune": section})
    finetune.run(params)
    again = paths.SLM.with_name("again")
    losses = train(base_slm(params), problems, again, params.pair, section, params.seed)
    assert read_json(paths.FINETUNE) == {"step": [1, 2, 3][:steps], "loss": losses}
    assert digest(paths.SLM) == digest(again)
