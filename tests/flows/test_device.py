"""The device of a run."""

import os
from pathlib import Path

import pytest
import torch

from citer.config.params import load_params
from citer.errors import InputError
from flows.pipeline import on_device


def test_the_device_of_a_run_overrides_that_of_params_during_the_run() -> None:
    before = dict(os.environ)
    with on_device("cpu"):
        assert load_params().pair.device == "cpu"
    with on_device("auto"):
        assert load_params().pair.device == "auto"
    assert dict(os.environ) == before


def test_auto_leaves_the_device_to_the_workers_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CITER_DEVICE", "cpu")
    with on_device("auto"):
        assert load_params().pair.device == "cpu"
    assert os.environ["CITER_DEVICE"] == "cpu"


def test_a_run_that_asks_for_a_missing_gpu_ends_before_any_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match="CITER_DEVICE: 'cuda': no CUDA device"), on_device("cuda"):
        pytest.fail("a stage would run")
    text = Path("params.yaml").read_text().replace("device: auto", "device: cuda")
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text(text)
    with pytest.raises(InputError, match=r"pair\.device: 'cuda': no CUDA"), on_device("auto"):
        pytest.fail("a stage would run")
    assert "CITER_DEVICE" not in os.environ
