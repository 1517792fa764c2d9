"""Every stage that runs a model says where, and refuses a missing GPU before it reads anything."""

from pathlib import Path

import pytest
import torch

from citer.cli.main import call
from citer.config.params import load_params
from citer.models.device import announce

PARAMS = Path(__file__).parents[2] / "citer/config/params.yaml"
STAGES = [
    *(["probe"], ["finetune"], ["score_llm"], ["score_slm"], ["router0"], ["rivals"]),
    *(["label", "1"], ["train", "1"], ["evaluate", "1"]),
]


@pytest.fixture(autouse=True)
def _without_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Enter a folder that has only params.yaml."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.chdir(tmp_path)
    configure("auto")


def configure(device: str) -> None:
    text = PARAMS.read_text()
    assert "device: auto" in text
    Path("params.yaml").write_text(text.replace("device: auto", f"device: {device}"))


@pytest.mark.parametrize("command", STAGES, ids=" ".join)
def test_a_stage_refuses_a_missing_gpu_before_it_reads_anything(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    configure("cuda")
    assert call(command) == 2
    refused = "citer: pair.device: 'cuda': no CUDA device here, expected auto or cpu\n"
    assert capsys.readouterr().err == refused


@pytest.mark.parametrize("command", STAGES, ids=" ".join)
def test_a_stage_says_where_it_runs(
    command: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert call(command) == 2  # the folder has no data
    assert capsys.readouterr().out == f"{' '.join(command)}: on cpu, 2 threads\n"


@pytest.mark.parametrize(("gpus", "more"), [(1, ""), (8, ", 8 GPUs visible")])
def test_a_gpu_is_named(
    gpus: int, more: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA H100")
    announce("label 1", load_params().pair)
    assert capsys.readouterr().out == f"label 1: on cuda:0 NVIDIA H100{more}\n"


def test_the_environment_overrides_the_device(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CITER_DEVICE", "cuda")
    assert call(["train", "1"]) == 2
    assert "CITER_DEVICE: 'cuda': no CUDA device here" in capsys.readouterr().err
    monkeypatch.setenv("CITER_DEVICE", "cpu")
    configure("cuda")
    assert load_params().pair.device == "cpu"


def test_an_unknown_device_in_the_environment_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CITER_DEVICE", "gpu")
    assert call(["train", "1"]) == 2
    refused = "citer: CITER_DEVICE: 'gpu': expected 'auto', 'cpu' or 'cuda'\n"
    assert capsys.readouterr().err == refused
