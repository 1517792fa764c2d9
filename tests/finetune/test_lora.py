"""Finetuning of an adapter: what is trained, merged, written and refused."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from citer.config.params import FinetuneParams, LoraParams
from citer.models.folder import ModelFolder
from citer.storage.tables import PARTIAL
from citer.training import sft
from citer.training.job import last_checkpoint
from citer.training.sft import finetune
from tests.finetune.conftest import PARAMS, PLACEMENT, SEED, halve
from tests.networks import network
from tests.taught import problems

HALF = PLACEMENT.model_copy(update={"dtype": "bfloat16"})
PROBLEMS = problems(12)


def adapter(**lora: object) -> FinetuneParams:
    return PARAMS.model_copy(update={"lora": LoraParams.model_validate(lora)})


@pytest.mark.parametrize("half", [False, True])
def test_the_published_weights_are_the_base_plus_the_scaled_product_of_the_adapter(
    base: ModelFolder, monkeypatch: pytest.MonkeyPatch, half: bool
) -> None:
    """The adapter is trained in float32, and the sum is rounded once."""
    if half:
        halve(base)
    monkeypatch.setattr(sft, "remove", lambda folder: None)
    pair = HALF if half else PLACEMENT
    losses = finetune(base, PROBLEMS, Path("slm"), pair, adapter(rank=4, alpha=6), SEED)
    assert losses[-1] < losses[0]
    (folder,) = (PARTIAL / "finetune").iterdir()
    trained = load_file(last_checkpoint(folder) / "adapter_model.safetensors")
    expected = load_file(base.path / "model.safetensors")
    layers = [name for name in expected if name.endswith("proj.weight")]
    assert len(layers) == 7
    assert len(trained) == 2 * len(layers)
    for name in layers:
        path = f"base_model.model.{name.removesuffix('.weight')}"
        update = trained[f"{path}.lora_B.weight"] @ trained[f"{path}.lora_A.weight"]
        assert update.abs().max() > 1e-3
        assert update.dtype == torch.float32
        expected[name] = (expected[name] + 6 / 4 * update).to(expected[name].dtype)
    places = {"rtol": 2**-8, "atol": 1e-6} if half else {"rtol": 0, "atol": 1e-6}
    torch.testing.assert_close(load_file("slm/model.safetensors"), expected, **places)


def test_fused_layers_have_adapters_too(base: ModelFolder) -> None:
    network("phi3", 384).float().save_pretrained(base.path)
    params = adapter(rank=4).model_copy(update={"epochs": 2 / 3})
    finetune(ModelFolder(base.path), PROBLEMS, Path("slm"), PLACEMENT, params, SEED)
    before, after = (load_file(path / "model.safetensors") for path in (base.path, Path("slm")))
    changed = {name.split(".")[-2] for name in before if not torch.equal(after[name], before[name])}
    assert changed == {"qkv_proj", "o_proj", "gate_up_proj", "down_proj"}
