"""Kill real training processes: training resumes, and no process is left behind."""

import multiprocessing
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from safetensors.torch import load_file

from citer.config.params import FinetuneParams, LoraParams
from citer.models.folder import ModelFolder
from citer.storage.tables import PARTIAL
from citer.training import sft, trainer
from citer.training.job import last_checkpoint, steps_done
from citer.training.sft import finetune
from tests.finetune.conftest import PARAMS, PLACEMENT, SEED
from tests.taught import problems

pytestmark = pytest.mark.slow
PROBLEMS = problems(12)
LONG = PARAMS.model_copy(update={"epochs": 20})
LORA = {"lora": LoraParams(rank=4)}


def ranks(count: int, params: FinetuneParams = PARAMS, **fields: object) -> FinetuneParams:
    return params.model_copy(update={"deepspeed": "on", "processes": count, **fields})


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Save every few steps."""
    monkeypatch.setattr(sft, "OFTEN", 5)


def finetune_often(*arguments: Any) -> None:
    """Do so in a new process, too."""
    sft.OFTEN = 5
    finetune(*arguments)


def weights(folder: str) -> dict[str, torch.Tensor]:
    return load_file(Path(folder, "model.safetensors"))


@contextmanager
def killed_midway(base: ModelFolder, params: FinetuneParams) -> Iterator[psutil.Process]:
    """Start a finetuning, wait for a second checkpoint, and kill the finetuning after the block.

    The second one may be incomplete. The first one is complete.
    """
    context = multiprocessing.get_context("spawn")
    arguments = base, PROBLEMS, Path("killed"), PLACEMENT, params, SEED
    process = context.Process(target=finetune_often, args=arguments)
    process.start()
    while len(list(PARTIAL.glob("finetune/*/checkpoint-*/trainer_state.json"))) < 2:
        assert process.is_alive()
        time.sleep(0.005)
    yield psutil.Process(process.pid)
    process.kill()
    process.join()
    (folder,) = (PARTIAL / "finetune").iterdir()
    assert 0 < steps_done(last_checkpoint(folder)) < params.steps(len(PROBLEMS))


@pytest.mark.parametrize("fields", [{}, LORA], ids=["full", "lora"])
def test_a_killed_training_resumes_to_the_same_bytes(
    base: ModelFolder,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    fields: dict[str, LoraParams],
) -> None:
    params = LONG.model_copy(update=fields)
    expected = finetune(base, PROBLEMS, Path("whole"), PLACEMENT, params, SEED)
    with killed_midway(base, params):
        pass
    resumed = []
    train = trainer.SFTTrainer.train

    def spy(self: trainer.SFTTrainer, resume_from_checkpoint: str | None) -> None:
        resumed.append(resume_from_checkpoint)
        train(self, resume_from_checkpoint=resume_from_checkpoint)

    monkeypatch.setattr(trainer.SFTTrainer, "train", spy)
    capsys.readouterr()
    losses = finetune(base, PROBLEMS, Path("resumed"), PLACEMENT, params, SEED)
    assert " 60 of 60 " in capsys.readouterr().err
    assert resumed != [None]
    assert losses == expected
    assert len(losses) == 60
    whole, again = (Path(name, "model.safetensors").read_bytes() for name in ("whole", "resumed"))
    assert whole == again


DIVIDED = {"gradient_checkpointing": "on", "zero": 3}
OFFLOADED = DIVIDED | {"zero": "3-offload"}


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(
    "fields", [{}, DIVIDED, OFFLOADED, {"zero": 3, **LORA}], ids=["zero 2", "3", "offload", "lora"]
)
def test_ranks_give_the_whole_weights_of_one_plain_process(
    base: ModelFolder, count: int, fields: dict[str, Any]
) -> None:
    plain = PARAMS.model_copy(update={"lora": fields.get("lora")})
    losses = finetune(base, PROBLEMS, Path("plain"), PLACEMENT, plain, SEED)
    of_ranks = finetune(base, PROBLEMS, Path("ranks"), PLACEMENT, ranks(count, **fields), SEED)
    assert of_ranks == pytest.approx(losses, rel=1e-4)
    torch.testing.assert_close(weights("ranks"), weights("plain"), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("fields", [{}, LORA], ids=["full", "lora"])
@pytest.mark.parametrize("count", [1, 2])
def test_a_killed_training_with_zero_3_resumes_to_the_same_weights(
    base: ModelFolder, count: int, fields: dict[str, LoraParams]
) -> None:
    params = ranks(count, LONG, zero=3, **fields)
    finetune(base, PROBLEMS, Path("whole"), PLACEMENT, params, SEED)
    with killed_midway(base, params):
        pass
    finetune(base, PROBLEMS, Path("resumed"), PLACEMENT, params, SEED)
    torch.testing.assert_close(weights("resumed"), weights("whole"), rtol=0, atol=0)


def test_no_rank_outlives_a_killed_launcher_and_training_resumes(base: ModelFolder) -> None:
    finetune(base, PROBLEMS, Path("whole"), PLACEMENT, ranks(2, LONG), SEED)
    with killed_midway(base, ranks(2, LONG)) as process:
        started = process.children(recursive=True)
        launched = [child for child in started if "citer.training.launch" in child.cmdline()]
    assert len(launched) == 3  # torchrun and two ranks
    _, alive = psutil.wait_procs(started, timeout=60)
    assert not alive
    finetune(base, PROBLEMS, Path("resumed"), PLACEMENT, ranks(2, LONG), SEED)
    torch.testing.assert_close(weights("resumed"), weights("whole"), rtol=0, atol=0)


def test_a_failed_rank_fails_the_stage(base: ModelFolder) -> None:
    (base.path / "model.safetensors").write_bytes(b"torn")
    with pytest.raises(RuntimeError, match="torchrun ended with 1"):
        finetune(base, PROBLEMS, Path("slm"), PLACEMENT, ranks(1), SEED)
