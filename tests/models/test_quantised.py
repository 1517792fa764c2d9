"""Quantised weights: an LLM that a server runs may have them."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from citer.config.params import PairParams
from citer.errors import InputError
from citer.models.folder import ModelFolder, PairFolder
from citer.models.outlined import outline_pair
from citer.models.pair import load_pair
from citer.models.size import ModelSize
from tests.models.conftest import refusal
from tests.quantised import to_fp8
from tests.tiny import TinyPair

LAYER = "model.layers.1.mlp.up_proj"


def test_weights_count_as_they_are_stored(folders: TinyPair) -> None:
    """The tiny LLM by hand: hidden 48, ffn 96, 4 heads of 12, 2 key-value heads, two layers.

    FP8 has a scale of 4 bytes per matrix.
    """
    to_fp8(folders.llm)
    matrices = 48 * 48 + 2 * 24 * 48 + 48 * 48 + 3 * 48 * 96
    plain = 4 * (2 * (48 + 2 * 24) + 2 * 2 * 48 + 48 + 384 * 48)  # biases, norms, head
    size = ModelSize.of(folders.llm, "float32")
    assert size.model.weight_bytes == 2 * (matrices + 4 * 7) + plain


def test_a_quantised_slm_is_refused(folders: TinyPair) -> None:
    to_fp8(folders.slm)
    expected = f"{folders.slm}/config.json: quantization_config: only an LLM may be quantised"
    assert refusal(folders) == expected
    with pytest.raises(InputError, match="only an LLM may be quantised"):
        ModelFolder(folders.slm).check()


@pytest.mark.parametrize("make", [load_pair, outline_pair])
def test_a_quantised_llm_is_not_loaded_here(folders: TinyPair, make) -> None:
    to_fp8(folders.llm)
    params = PairParams(slm=str(folders.slm), llm=str(folders.llm), device="cpu", dtype="float32")
    expected = r"config\.json: quantization_config: expected none, or a vLLM server"
    with pytest.raises(InputError, match=f"^{folders.llm}/{expected}"):
        make(PairFolder(*folders), params)


@pytest.mark.parametrize(
    ("gone", "complaint"),
    [
        (["model.norm.weight"], "model.norm.weight: missing"),
        ([f"{LAYER}.weight", f"{LAYER}.weight_scale_inv"], f"{LAYER}.weight: missing"),
    ],
)
def test_a_missing_tensor_is_refused(folders: TinyPair, gone: list[str], complaint: str) -> None:
    to_fp8(folders.llm)
    change(folders.llm, dict.fromkeys(gone))
    assert refusal(folders).startswith(f"{folders.llm}: {complaint}")


def test_an_unexpected_tensor_is_refused(folders: TinyPair) -> None:
    to_fp8(folders.llm)
    change(folders.llm, {"model.layers.9.bias": torch.ones(3)})
    assert refusal(folders).startswith(f"{folders.llm}: model.layers.9.bias: unexpected")


def change(folder: Path, tensors: dict[str, torch.Tensor | None]) -> None:
    weights = load_file(folder / "model.safetensors") | tensors
    kept = {name: weight for name, weight in weights.items() if weight is not None}
    save_file(kept, folder / "model.safetensors", {"format": "pt"})
