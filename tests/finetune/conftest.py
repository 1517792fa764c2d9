"""A tiny SLM in a temporary folder, and parameters of a short training."""

from pathlib import Path

import pytest

from citer.config.params import FinetuneParams, PairParams
from citer.models.folder import ModelFolder
from tests.tiny import make_tiny_pair

PLACEMENT = PairParams(slm="slm", llm="llm", device="cpu", dtype="float32")
SEED = 1
PARAMS = FinetuneParams(
    learning_rate=1e-2,
    epochs=10 / 3,  # 10 steps of 12 rows
    batch_size=4,
    max_length=512,
    deepspeed="off",
    processes=1,
)


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelFolder:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return ModelFolder(make_tiny_pair(tmp_path / "pair").slm)
