"""Quantised weights: an LLM may have them, an SLM may not."""

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from citer.config.params import PairParams
from citer.errors import InputError
from citer.models.folder import ModelFolder, PairFolder
from citer.models.pair import LanguageModel, load_pair
from citer.models.rounding import deviation
from tests.models.conftest import edit, refusal
from tests.quantised import METHODS, to_8_bits, to_fp8, to_int8
from tests.tiny import TinyPair

LAYER = "model.layers.1.mlp.up_proj"


def llm(folders: TinyPair, dtype: str = "float32") -> LanguageModel:
    params = PairParams(slm=str(folders.slm), llm=str(folders.llm), device="cpu", dtype=dtype)
    return load_pair(PairFolder(*folders), params).llm


@pytest.mark.parametrize("quantise", METHODS)
def test_a_quantised_llm_has_nearly_the_states_of_the_plain_one(
    folders: TinyPair, quantise
) -> None:
    ids = torch.tensor([[5, 90, 17, 300, 2]])
    plain_BTH = llm(folders).last_hidden(input_ids=ids)
    quantise(folders.llm)
    distance = deviation(llm(folders).last_hidden(input_ids=ids), plain_BTH)
    assert 1e-3 < distance < 0.2


@pytest.mark.parametrize("quantise", METHODS)
def test_weights_count_as_they_are_stored(folders: TinyPair, quantise) -> None:
    """The tiny LLM by hand: hidden 48, ffn 96, 4 heads of 12, 2 key-value heads, two layers.

    FP8 has a scale of 4 bytes per matrix; torchao has one per row, and a zero of 1 byte;
    bitsandbytes has one per row, and 1 byte per matrix for the layout.
    """
    quantise(folders.llm)
    rows = 48 + 2 * 24 + 48 + 2 * 96 + 48
    matrices = 48 * 48 + 2 * 24 * 48 + 48 * 48 + 3 * 48 * 96
    scales = {to_fp8: 4 * 7, to_int8: 5 * rows, to_8_bits: 4 * rows + 7}[quantise]
    plain = 4 * (2 * (48 + 2 * 24) + 2 * 2 * 48 + 48 + 384 * 48)  # biases, norms, head
    assert llm(folders).weight_bytes == 2 * (matrices + scales) + plain


def test_a_quantised_slm_is_refused(folders: TinyPair) -> None:
    to_fp8(folders.slm)
    expected = f"{folders.slm}/config.json: quantization_config: only an LLM may be quantised"
    assert refusal(folders) == expected
    with pytest.raises(InputError, match="only an LLM may be quantised"):
        ModelFolder(folders.slm).check()


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"bits": 4}, "has no `quant_method` attribute"),
        ({"quant_method": "none"}, "Unknown quantization type, got none"),
        pytest.param(
            {"quant_method": "bitsandbytes", "load_in_8bit": True},
            "bitsandbytes",
            marks=pytest.mark.skipif(
                find_spec("bitsandbytes") is not None, reason="bitsandbytes is installed"
            ),
        ),
    ],
)
def test_a_method_that_cannot_run_here_is_refused_before_loading(
    folders: TinyPair, settings: dict[str, object], complaint: str
) -> None:
    edit(folders.llm / "config.json", quantization_config=settings)
    message = refusal(folders)
    assert message.startswith(f"{folders.llm}/config.json: quantization_config: ")
    assert complaint in message


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


def test_a_tensor_that_only_transformers_misses_is_refused_at_load(folders: TinyPair) -> None:
    to_fp8(folders.llm)
    change(folders.llm, {f"{LAYER}.weight_scale_inv": None})
    with pytest.raises(InputError, match=f"^{folders.llm}: "):
        llm(folders)


def test_an_unexpected_tensor_is_refused(folders: TinyPair) -> None:
    to_fp8(folders.llm)
    change(folders.llm, {"model.layers.9.bias": torch.ones(3)})
    assert refusal(folders).startswith(f"{folders.llm}: model.layers.9.bias: unexpected")


def test_a_precision_that_the_method_cannot_run_is_refused_at_load(folders: TinyPair) -> None:
    to_fp8(folders.llm)
    with pytest.raises(InputError, match=r"transformers cannot run it in bfloat16: RuntimeError: "):
        llm(folders, "bfloat16")


def change(folder: Path, tensors: dict[str, torch.Tensor | None]) -> None:
    weights = load_file(folder / "model.safetensors") | tensors
    kept = {name: weight for name, weight in weights.items() if weight is not None}
    save_file(kept, folder / "model.safetensors", {"format": "pt"})
