"""Sizes from configurations and headers. Oracles: published parameter counts, loaded models."""

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from citer.config.params import PairParams
from citer.errors import InputError
from citer.models.folder import ModelFolder
from citer.models.pair import load_model
from citer.models.size import CONFIG, HEADERS, ModelSize
from tests.configs import LLAMA_8B, LLAMA_70B, QWEN_1_5B, QWEN_72B
from tests.models.conftest import edit
from tests.tiny import make_tiny_pair

AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128}
INT8 = {"quant_method": "torchao", "quant_type": {"default": {"_type": "Int8WeightOnlyConfig"}}}
INT4 = {  # the states in 8 bits, the weights in 4
    "quant_method": "torchao",
    "quant_type": {"default": {"_type": "Int8DynamicActivationInt4WeightConfig"}},
}
NESTED = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True}


def described(folder: Path, config: dict, **fields: object) -> Path:
    """Write a model folder without weights."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config | fields))
    return folder


@pytest.mark.parametrize(
    ("config", "parameters", "kv_bytes"),
    [
        (QWEN_1_5B, 1_543_714_304, 2 * 28 * 2 * 128 * 2),
        (QWEN_72B, 72_706_203_648, 2 * 80 * 8 * 128 * 2),
        (LLAMA_8B, 8_030_261_248, 2 * 32 * 8 * 128 * 2),
        (LLAMA_70B, 70_553_706_496, 2 * 80 * 8 * 128 * 2),
    ],
)
def test_the_seeds_models_have_their_published_numbers_of_parameters(
    tmp_path: Path, config: dict, parameters: int, kv_bytes: int
) -> None:
    size = ModelSize.of(described(tmp_path, config), "bfloat16")
    assert size.parameters == parameters
    assert size.resident == 2 * parameters
    embedding = 0 if config["tie_word_embeddings"] else config["vocab_size"] * config["hidden_size"]
    assert size.model.weight_bytes == 2 * (parameters - embedding)
    assert size.model.kv_bytes == kv_bytes
    assert size.source == CONFIG


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_size_is_that_of_the_loaded_model(tmp_path: Path, tied: bool, dtype: str) -> None:
    path = make_tiny_pair(tmp_path).slm
    if tied:
        edit(path / "config.json", tie_word_embeddings=True)
        weights = load_file(path / "model.safetensors")
        del weights["lm_head.weight"]
        save_file(weights, path / "model.safetensors", {"format": "pt"})
    params = PairParams(slm=str(path), llm=str(path), device="cpu", dtype=dtype)
    loaded = load_model("slm", ModelFolder(path), params)
    size = ModelSize.of(path, dtype)
    assert size.source == HEADERS
    assert size.parameters == sum(w.numel() for w in loaded.network.parameters())
    assert size.model.card == loaded.card._replace(digest="")
    assert (size.resident == size.model.weight_bytes) == tied


def test_stored_bytes_are_counted_if_a_quantised_model_has_its_files(tmp_path: Path) -> None:
    path = make_tiny_pair(tmp_path).llm
    edit(path / "config.json", quantization_config=AWQ)
    size = ModelSize.of(path, "bfloat16")
    weights = load_file(path / "model.safetensors")
    assert size.resident == sum(weight.nbytes for weight in weights.values())
    embedding = weights["model.embed_tokens.weight"]
    assert size.model.weight_bytes == size.resident - embedding.nbytes
    assert size.quantised


@pytest.mark.parametrize(
    ("config", "settings", "gigabytes"),
    [
        (QWEN_72B, AWQ, 41.46),
        (LLAMA_70B, NESTED, 39.51),
        (LLAMA_8B, INT8, 9.08),
        (LLAMA_8B, INT4, 5.59),
    ],
)
def test_without_files_a_quantised_model_is_estimated_by_its_bits(
    tmp_path: Path, config: dict, settings: dict, gigabytes: float
) -> None:
    """By hand: 70.21, 68.45 and 6.98 billion weights in the layers; two embeddings in float16."""
    path = described(tmp_path, config, quantization_config=settings)
    size = ModelSize.of(path, "float16")
    assert size.resident == pytest.approx(gigabytes * 1e9, rel=1e-3)
    assert size.quantised
    two_bytes = 2 * config["vocab_size"] * config["hidden_size"]
    assert size.resident - size.model.weight_bytes == two_bytes
    assert size.source == CONFIG


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"quant_method": "hqq"}, "quantization_config: 'hqq': expected weight files, or awq"),
        ({"quant_method": "awq"}, "quantization_config: 'awq': expected weight files, or awq"),
        (AWQ | {"bits": "four"}, "quantization_config.bits: 'four': expected"),
    ],
)
def test_unknown_bits_are_refused_without_files(
    tmp_path: Path, settings: dict, complaint: str
) -> None:
    path = described(tmp_path, QWEN_1_5B, quantization_config=settings)
    with pytest.raises(InputError, match=complaint):
        ModelSize.of(path, "bfloat16")


def test_a_folder_without_a_configuration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no config\.json, expected a Hugging Face"):
        ModelSize.of(tmp_path, "bfloat16")


def test_files_that_do_not_fit_the_configuration_are_refused(tmp_path: Path) -> None:
    slm, _ = make_tiny_pair(tmp_path)
    edit(slm / "config.json", intermediate_size=65)
    with pytest.raises(InputError, match=r"down_proj.*, config.json expects \[32, 65\]"):
        ModelSize.of(slm, "bfloat16")
