"""What makes two folders a pair, and what refuses them before any weight is read."""

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from citer.data.prompts import token_ids
from citer.errors import InputError
from citer.models.folder import (
    check_pair,
    eos_token_ids,
    load_tokenizer,
    model_digest,
    tokenizer_digest,
)
from tests import tiny
from tests.tiny import TinyPair, make_tiny_pair

# Mistral's window applies without a switch, which Qwen2's configuration has.
MISTRAL = {
    "model_type": "mistral",
    "sliding_window": 8,
    "layer_types": None,
    "use_sliding_window": None,
}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
LONGROPE = DYNAMIC | {
    "rope_type": "longrope",
    "original_max_position_embeddings": 512,
    "short_factor": [1.0] * 4,
    "long_factor": [3.0] * 4,
}

UNASKED = {
    "post_processor": {
        "type": "ByteLevel",
        "add_prefix_space": True,
        "trim_offsets": True,
        "use_regex": True,
    },
    "truncation": {"max_length": 3, "strategy": "LongestFirst", "stride": 0, "direction": "Left"},
    "padding": {
        "strategy": {"Fixed": 64},
        "direction": "Left",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": tiny.EOS,
    },
}


@pytest.fixture
def folders(tmp_path: Path) -> TinyPair:
    return make_tiny_pair(tmp_path)


def edit(path: Path, **changes: object) -> None:
    content = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


def refusal(pair: TinyPair) -> str:
    with pytest.raises(InputError) as caught:
        check_pair(pair.slm, pair.llm)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_another_tokenizer_is_refused_naming_both(folders: TinyPair) -> None:
    tokenizer = json.loads((folders.llm / "tokenizer.json").read_text())
    tokenizer["model"]["merges"].pop()
    (folders.llm / "tokenizer.json").write_text(json.dumps(tokenizer))
    assert (
        refusal(folders)
        == f"{folders.slm} and {folders.llm}: not one tokenizer: their `model` differ"
    )


def add_bos(folder: Path) -> None:
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    begin = {"SpecialToken": {"id": tiny.EOS, "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    tokenizer["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [begin, text],
        "pair": [begin, text, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {tiny.EOS: {"id": tiny.EOS, "ids": [0], "tokens": [tiny.EOS]}},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))


def test_a_tokenizer_that_begins_prompts_with_bos_beside_one_that_does_not_is_refused(
    folders: TinyPair,
) -> None:
    before = tokenizer_digest(folders.llm)
    add_bos(folders.llm)
    assert "not one tokenizer: their `prompt` differ" in refusal(folders)
    assert tokenizer_digest(folders.llm) != before
    add_bos(folders.slm)
    check_pair(*folders)
    assert tokenizer_digest(folders.slm) == tokenizer_digest(folders.llm)


def test_settings_that_encoding_does_not_ask_for_change_nothing(folders: TinyPair) -> None:
    ids = token_ids("What is 2 + 2?", load_tokenizer(folders.slm), begins=True)
    edit(folders.llm / "tokenizer.json", **UNASKED)
    edit(folders.llm / "tokenizer_config.json", split_special_tokens=True, model_max_length=4)
    check_pair(*folders)
    assert token_ids("What is 2 + 2?", load_tokenizer(folders.llm), begins=True) == ids


@pytest.mark.parametrize("name", ["slm", "link", "links"])
def test_one_model_is_no_pair(folders: TinyPair, tmp_path: Path, name: str) -> None:
    (tmp_path / "link").symlink_to(folders.slm)
    (tmp_path / "links").mkdir()
    for file in folders.slm.iterdir():
        (tmp_path / "links" / file.name).symlink_to(file)
    twin = TinyPair(folders.slm, tmp_path / name)
    assert refusal(twin) == f"{twin.slm} and {twin.llm}: the same weights, expected two models"


def test_another_eos_is_refused_naming_both(folders: TinyPair) -> None:
    edit(folders.llm / "generation_config.json", eos_token_id=[5, 7])
    assert refusal(folders).startswith(f"{folders.slm} and {folders.llm}: not one EOS: [")


def test_eos_ids_are_a_set_whose_order_and_repetitions_do_not_matter(folders: TinyPair) -> None:
    before = tokenizer_digest(folders.slm)
    edit(folders.slm / "generation_config.json", eos_token_id=[0, 5, 0])
    edit(folders.llm / "generation_config.json", eos_token_id=[5, 0])
    check_pair(*folders)
    assert eos_token_ids(folders.slm) == (0, 5)
    assert before != tokenizer_digest(folders.slm) == tokenizer_digest(folders.llm)


def test_an_eos_beyond_the_vocabulary_is_refused(folders: TinyPair) -> None:
    edit(folders.llm / "generation_config.json", eos_token_id=[0, 5000])
    assert "llm: eos_token_id: 5000: expected one below vocab_size" in refusal(folders)


def test_missing_weights_are_refused(folders: TinyPair) -> None:
    (folders.llm / "model.safetensors").unlink()
    assert "llm/model.safetensors: no such file" in refusal(folders)


def test_torn_weights_are_refused_before_they_are_read(folders: TinyPair) -> None:
    weights = folders.llm / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    assert "llm/model.safetensors: not whole safetensors weights" in refusal(folders)


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("config.json", '{"model', "llm/config.json: not JSON"),
        ("config.json", "[]", "llm/config.json: top level: []: expected a section"),
        ("config.json", '{"model_type": "qwen2"}', "llm/config.json: vocab_size: missing"),
        ("generation_config.json", "[]", "llm/generation_config.json: top level: []: expected"),
        ("generation_config.json", '{"eos_token_id": {}}', "eos_token_id.int: {}: expected"),
        ("tokenizer.json", '{"model', "llm: no usable tokenizer: "),
        ("tokenizer.json", "{}", "llm: no usable tokenizer: "),
        ("tokenizer.json", "[]", "llm: no usable tokenizer: "),
        ("tokenizer_config.json", "[]", "llm: no usable tokenizer: "),
    ],
)
def test_a_broken_setting_is_refused(
    folders: TinyPair, name: str, text: str, complaint: str
) -> None:
    (folders.llm / name).write_text(text)
    assert complaint in refusal(folders)


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
        ({"model_type": "llama"}, "model.layers.0.self_attn.k_proj.bias: a tensor too many"),
        ({"num_key_value_heads": 0}, "config.json: num_key_value_heads: 0: expected greater"),
        ({"hidden_act": "none"}, "llm: no usable model: KeyError: 'none'"),
        ({"quantization_config": {"bits": 4}}, "quantization_config: {'bits': 4}: expected None"),
    ],
)
def test_a_configuration_of_other_weights_is_refused(
    folders: TinyPair, changes: dict[str, object], complaint: str
) -> None:
    edit(folders.llm / "config.json", **changes)
    assert complaint in refusal(folders)


def test_a_missing_tensor_is_refused_and_not_made_up(folders: TinyPair) -> None:
    weights = load_file(folders.llm / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, folders.llm / "model.safetensors", {"format": "pt"})
    expected = "model.norm.weight: no such tensor, config.json expects it"
    assert refusal(folders) == f"{folders.llm}: {expected}"


def test_tensors_that_follow_from_others_may_be_there_or_not(folders: TinyPair) -> None:
    weights = load_file(folders.llm / "model.safetensors")
    edit(folders.llm / "config.json", tie_word_embeddings=True)
    check_pair(*folders)
    del weights["lm_head.weight"]
    weights["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)
    save_file(weights, folders.llm / "model.safetensors", {"format": "pt"})
    check_pair(*folders)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"model_type": "gpt2"}, "config.json: model_type: 'gpt2': expected 'llama', 'mistral'"),
        ({"rope_parameters": 3}, "Validation error for field 'rope_parameters'"),
        ({"layer_types": ["sliding_attention"], "sliding_window": 8}, "sliding-window"),
        (MISTRAL, "sliding-window"),
        ({"rope_parameters": LONGROPE}, "slm: rope_type 'longrope' depends on a batch's longest"),
        ({"rope_parameters": DYNAMIC}, "slm: rope_type 'dynamic' depends on a batch's longest"),
    ],
)
def test_a_model_that_the_engine_cannot_run_is_refused(
    folders: TinyPair, changes: dict[str, object], complaint: str
) -> None:
    edit(folders.slm / "config.json", **changes)
    assert complaint in refusal(folders)


def test_no_model_folder_is_refused(folders: TinyPair) -> None:
    assert "no config.json" in refusal(TinyPair(folders.slm / "nowhere", folders.llm))


def test_a_tokenizer_that_loses_text_is_refused(folders: TinyPair) -> None:
    edit(folders.slm / "tokenizer.json", normalizer={"type": "Lowercase"})
    with pytest.raises(InputError, match=r"the tokenizer turns 'Problem"):
        load_tokenizer(folders.slm)


def test_the_digest_is_of_the_weights(folders: TinyPair) -> None:
    before = model_digest(folders.slm)
    assert model_digest(folders.slm) == before
    weights = bytearray((folders.slm / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (folders.slm / "model.safetensors").write_bytes(weights)
    assert model_digest(folders.slm) != before


def test_the_digest_is_of_the_weights_that_are_loaded_where_an_index_lies_beside(
    folders: TinyPair,
) -> None:
    before = model_digest(folders.slm)
    (folders.slm / "other.safetensors").write_bytes(b"")
    index = {"weight_map": {"a": "other.safetensors"}}
    (folders.slm / "model.safetensors.index.json").write_text(json.dumps(index))
    assert model_digest(folders.slm) == before


@pytest.mark.parametrize("number", [1000, 2**31])
def test_an_id_beyond_the_models_vocabulary_is_refused(folders: TinyPair, number: int) -> None:
    """At once: to compare such a tokenizer's parts would take minutes."""
    tokenizer = json.loads((folders.llm / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"]["a"] = number
    (folders.llm / "tokenizer.json").write_text(json.dumps(tokenizer))
    assert f"llm/tokenizer.json: 'a' has the id {number}, expected one below" in refusal(folders)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer_config.json"])
def test_a_fifo_is_refused_and_not_waited_for(folders: TinyPair, name: str) -> None:
    (folders.llm / name).unlink()
    os.mkfifo(folders.llm / name)
    assert refusal(folders) == f"{folders.llm}/{name}: not a file, expected one"


@pytest.mark.parametrize(
    ("target", "told"), [("nowhere", "no such file"), ("tokenizer_config.json", "cannot be read: ")]
)
def test_a_broken_link_is_refused(folders: TinyPair, target: str, told: str) -> None:
    (folders.llm / "tokenizer_config.json").unlink()
    (folders.llm / "tokenizer_config.json").symlink_to(target)
    assert refusal(folders).startswith(f"{folders.llm}/tokenizer_config.json: {told}")


def test_a_tokenizer_that_cannot_encode_is_refused(folders: TinyPair) -> None:
    edit(folders.llm / "tokenizer_config.json", model_max_length="many")
    assert refusal(folders).startswith(f"{folders.llm}: no usable tokenizer: TypeError(")


def test_a_generation_config_that_cannot_be_loaded_is_refused(folders: TinyPair) -> None:
    edit(folders.llm / "generation_config.json", max_new_tokens=[1])
    assert refusal(folders).startswith(f"{folders.llm}: no usable model: TypeError: ")
