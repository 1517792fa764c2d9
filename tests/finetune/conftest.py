"""A tiny SLM in a temporary folder, and parameters of a short training."""

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

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


def halve(base: ModelFolder) -> None:
    """Store the model in bfloat16."""
    weights = load_file(base.path / "model.safetensors")
    halved = {name: weight.bfloat16() for name, weight in weights.items()}
    save_file(halved, base.path / "model.safetensors", {"format": "pt"})
    name_dtype(base, "bfloat16")


def name_dtype(base: ModelFolder, dtype: str) -> None:
    """Name the precision in the configuration, which need not be that of the weights."""
    config = json.loads((base.path / "config.json").read_text())
    (base.path / "config.json").write_text(json.dumps(config | {"dtype": dtype}))


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelFolder:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return ModelFolder(make_tiny_pair(tmp_path / "pair").slm)
