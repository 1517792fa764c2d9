"""A training that was stopped goes on to the same head."""

from pathlib import Path

import numpy as np
import pytest
import torch

from citer.errors import InputError
from citer.storage import checkpoint
from citer.storage.checkpoint import Checkpoint
from citer.training import router as training
from citer.training.router import Trained, train_head
from tests.test_training import CPU, SEED, _data, _params, _state

PARAMS = _params(epochs=7, dropout=0.4, learning_rate=0.05)


class StoppedError(Exception):
    """Ends a training where a kill could."""


@pytest.fixture(autouse=True)
def each_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "SAVE_SECONDS", 0)


def train(path: Path, epochs: int = PARAMS.epochs) -> tuple[Trained, int]:
    """Stop in the epoch after so many. Returns the number of epochs that were run, too."""
    run, train_epoch = [], training._train_epoch

    def count(*args):
        if len(run) == epochs:
            raise StoppedError
        run.append(args)
        return train_epoch(*args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "_train_epoch", count)
        return train_head(*_data(), PARAMS, SEED, CPU, Checkpoint(path)), len(run)


@pytest.fixture(scope="module")
def whole() -> Trained:
    return train_head(*_data(), PARAMS, SEED, CPU)


@pytest.mark.parametrize("epochs", [0, 1, 4])
def test_a_stopped_training_goes_on_to_the_same_head(
    epochs: int, whole: Trained, tmp_path: Path
) -> None:
    with pytest.raises(StoppedError):
        train(tmp_path / "state", epochs)
    torch.rand(5)  # as another process: with another state of the global generator
    trained, later = train(tmp_path / "state")
    assert later == whole.metrics["epochs"] - epochs
    for name in ("thresholds", "metrics", "curve"):
        assert getattr(trained, name) == getattr(whole, name)
    assert all(np.array_equal(*both) for both in zip(_state(trained), _state(whole), strict=True))


def test_a_finished_training_is_not_repeated(whole: Trained, tmp_path: Path) -> None:
    train(tmp_path / "state")
    trained, later = train(tmp_path / "state")
    assert (later, trained.metrics) == (0, whole.metrics)


def test_progress_starts_at_the_saved_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("citer.progress.LOG_SECONDS", 0)
    for _ in range(2):
        with pytest.raises(StoppedError):
            train(tmp_path / "state", 2)
        lines = capsys.readouterr().err.splitlines()
    assert "3 of 7 epochs" in lines[0]


def test_a_short_training_saves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "SAVE_SECONDS", 3600)
    train(tmp_path / "state")
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("place", [0, 1000, -1])
def test_a_damaged_state_is_refused_in_one_line(place: int, tmp_path: Path) -> None:
    path = tmp_path / "state"
    train(path)
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match=f"^{path}: damaged, .*: remove it$"):
        train(path)
