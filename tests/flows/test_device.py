"""The device of a run."""

from pathlib import Path

import pytest
import torch

from citer.config.params import load_params
from citer.errors import InputError
from flows.pipeline import use_device


@pytest.fixture(autouse=True)
def _without_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CITER_DEVICE", "")  # and what a test sets is undone
    monkeypatch.delenv("CITER_DEVICE")


def test_the_device_of_a_run_overrides_that_of_params() -> None:
    use_device("auto")
    assert load_params().pair.device == "auto"
    use_device("cpu")
    assert load_params().pair.device == "cpu"


def test_auto_leaves_the_device_to_the_workers_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CITER_DEVICE", "cpu")
    use_device("auto")
    assert load_params().pair.device == "cpu"


def test_a_run_that_asks_for_a_missing_gpu_ends_before_any_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    text = Path("params.yaml").read_text().replace("device: auto", "device: cuda")
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text(text)
    with pytest.raises(InputError, match=r"pair\.device: 'cuda': no CUDA"):
        use_device("auto")
    with pytest.raises(InputError, match="CITER_DEVICE: 'cuda': no CUDA device"):
        use_device("cuda")
