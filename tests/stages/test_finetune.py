"""The stage finetune: the model, and beside it the loss of every step."""

import shutil

import pytest

from citer.config.params import Params
from citer.data.problems import read_problems
from citer.stages import finetune, paths
from citer.stages.folders import base_slm
from citer.storage.tables import digest, read_json
from citer.training.sft import finetune as train
from tests.stages.sections import with_section


@pytest.mark.parametrize("steps", [0, 3])
def test_the_loss_of_every_step_lies_beside_the_model(project: Params, steps: int) -> None:
    shutil.copy(paths.referenced("preference"), paths.referenced("sft"))
    problems = read_problems(paths.referenced("sft"))
    settings = {"batch_size": 2, "deepspeed": "off", "processes": 1}
    params = with_section(project, "finetune", **settings, epochs=2 * steps / len(problems))
    finetune.run(params)
    again = paths.SLM.with_name("again")
    losses = train(base_slm(params), problems, again, params.pair, params.finetune, params.seed)
    assert read_json(paths.FINETUNE) == {"step": [1, 2, 3][:steps], "loss": losses}
    assert digest(paths.SLM) == digest(again)
