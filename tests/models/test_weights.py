"""Weights that do not fit the configuration are refused by their headers."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from citer.models.folder import PairFolder
from tests.models.conftest import edit, refusal
from tests.tiny import TinyPair


def test_missing_weights_are_refused(folders: TinyPair) -> None:
    (folders.llm / "model.safetensors").unlink()
    assert "llm/model.safetensors: no such file" in refusal(folders)


def test_torn_weights_are_refused_before_they_are_read(folders: TinyPair) -> None:
    weights = folders.llm / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert "llm/model.safetensors: not whole safetensors weights" in refusal(folders)


def test_a_missing_shard_is_refused(folders: TinyPair) -> None:
    (folders.slm / "model.safetensors").rename(folders.slm / "model-1.safetensors")
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (folders.slm / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "slm/model-2.safetensors: no such file" in refusal(folders)


@pytest.mark.parametrize(
    ("index", "complaint"),
    [("{}", "weight_map: missing"), ('{"weight_map": {}}', "weight_map: {}: expected at least 1")],
)
def test_an_index_that_names_no_shard_is_refused(
    folders: TinyPair, index: str, complaint: str
) -> None:
    (folders.slm / "model.safetensors").rename(folders.slm / "model-1.safetensors")
    (folders.slm / "model.safetensors.index.json").write_text(index)
    assert f"slm/model.safetensors.index.json: {complaint}" in refusal(folders)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (
            {"hidden_size": 64},
            "lm_head.weight: its shape is [384, 48], config.json expects [384, 64] (and 26 more)",
        ),
        ({"model_type": "llama"}, "model.layers.0.self_attn.k_proj.bias: unexpected"),
        ({"num_key_value_heads": 0}, "config.json: num_key_value_heads: 0: expected greater"),
        ({"hidden_act": "none"}, "llm: no usable model: KeyError: 'none'"),
    ],
)
def test_a_configuration_of_other_weights_is_refused(
    folders: TinyPair, changes: dict[str, object], complaint: str
) -> None:
    edit(folders.llm / "config.json", **changes)
    assert complaint in refusal(folders)


def test_a_missing_tensor_is_refused_and_not_initialised_at_random(folders: TinyPair) -> None:
    weights = load_file(folders.llm / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, folders.llm / "model.safetensors", {"format": "pt"})
    expected = "model.norm.weight: missing, config.json expects this tensor"
    assert refusal(folders) == f"{folders.llm}: {expected}"


def test_tensors_that_follow_from_others_are_optional(folders: TinyPair) -> None:
    weights = load_file(folders.llm / "model.safetensors")
    edit(folders.llm / "config.json", tie_word_embeddings=True)
    PairFolder(*folders)
    del weights["lm_head.weight"]
    weights["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)
    save_file(weights, folders.llm / "model.safetensors", {"format": "pt"})
    PairFolder(*folders)
