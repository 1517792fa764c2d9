"""The device of a run."""

import os
from pathlib import Path

import pytest
import torch

from citer.config.params import load_params
from flows.pipeline import retrain, use_device
from tests.flows.conftest import Pipeline
from tests.flows.project import change_params


@pytest.fixture(autouse=True)
def _without_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CITER_DEVICE", "")  # and what a test sets is undone
    monkeypatch.delenv("CITER_DEVICE")


def test_a_device_overrides_that_of_params_and_auto_leaves_it_to_the_environment() -> None:
    use_device("auto")
    assert load_params().pair.device == "auto"
    use_device("cpu")
    assert load_params().pair.device == "cpu"
    use_device("auto")
    assert load_params().pair.device == os.environ["CITER_DEVICE"] == "cpu"


@pytest.mark.usefixtures("prefect")
def test_a_run_that_asks_for_a_missing_gpu_ends_before_any_stage(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    pipeline({"prepare": {"cmd": "touch ran"}})
    state = retrain(device="cuda", return_state=True)
    assert state.is_failed()
    refused = "CITER_DEVICE: 'cuda': no CUDA device here, expected auto or cpu"
    assert state.message == refused
    monkeypatch.delenv("CITER_DEVICE")
    change_params("pair", device="cuda")
    state = retrain(return_state=True)
    assert state.message == refused.replace("CITER_DEVICE", "pair.device")
    assert not Path("ran").exists()
