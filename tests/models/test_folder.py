"""Model folders that the engine cannot run are refused before any weight is read."""

import json
import os

import pytest

from citer.models.folder import ModelFolder
from tests.models.conftest import edit, refusal
from tests.tiny import TinyPair

UNUSED = {"layer_types": ["sliding_attention"], "sliding_window": 8}  # no `use_sliding_window`
LINEAR = {"layer_types": ["linear_attention"]}
MISTRAL = {"model_type": "mistral", "sliding_window": 8, "layer_types": ["chunked_attention"]}
LLAMA = {"model_type": "llama", "sliding_window": 8, "layer_types": None}
GEMMA3 = {"model_type": "gemma3_text", "layer_types": None, "rope_parameters": None}
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
LONGROPE = DYNAMIC | {
    "rope_type": "longrope",
    "original_max_position_embeddings": 512,
    "short_factor": [1.0] * 4,
    "long_factor": [3.0] * 4,
}


def test_an_eos_beyond_the_vocabulary_is_refused(folders: TinyPair) -> None:
    edit(folders.llm / "generation_config.json", eos_token_id=[0, 5000])
    assert "llm: eos_token_id: 5000: expected one below vocab_size" in refusal(folders)


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


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"model_type": "gpt2"}, "config.json: model_type: 'gpt2': expected 'llama', 'mistral'"),
        ({"rope_parameters": 3}, "Validation error for field 'rope_parameters'"),
        (UNUSED, "slm/config.json: layer_types.0: 'sliding_attention': expected 'full_attention'"),
        (LINEAR, "slm/config.json: layer_types.0: 'linear_attention': expected 'full_attention'"),
        (MISTRAL, "slm/config.json: layer_types.0: 'chunked_attention': expected 'full_attention'"),
        (LLAMA, "slm/config.json: sliding_window: 8: expected none"),
        ({"rope_parameters": LONGROPE}, "slm/config.json: rope_type: 'longrope': expected 'def"),
        ({"rope_parameters": DYNAMIC}, "slm/config.json: rope_type: 'dynamic': expected 'default'"),
        (
            GEMMA3 | {"final_logit_softcapping": 30.0},
            "final_logit_softcapping: 30.0: expected none",
        ),
        (GEMMA3 | {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping: 50.0: expected none"),
        (GEMMA3 | {"use_bidirectional_attention": True}, "attention: True: expected none"),
        (GEMMA3 | {"rope_scaling": DYNAMIC}, "config.json: rope_type: 'dynamic': expected 'def"),
    ],
)
def test_a_model_that_the_engine_cannot_run_is_refused(
    folders: TinyPair, changes: dict[str, object], complaint: str
) -> None:
    edit(folders.slm / "config.json", **changes)
    assert complaint in refusal(folders)


def test_a_folder_without_a_model_is_refused(folders: TinyPair) -> None:
    assert "no config.json" in refusal(TinyPair(folders.slm / "nowhere", folders.llm))


@pytest.mark.parametrize("place", [0, 1])
def test_an_adapter_beside_the_weights_is_refused(folders: TinyPair, place: int) -> None:
    path = folders[place] / "adapter_config.json"
    path.write_text("{}")
    assert refusal(folders) == f"{path}: transformers would add it to the weights, expected none"


def test_the_digest_covers_the_loaded_weights_although_an_index_names_others(
    folders: TinyPair,
) -> None:
    before = ModelFolder(folders.slm).digest
    (folders.slm / "other.safetensors").write_bytes(b"")
    index = {"weight_map": {"a": "other.safetensors"}}
    (folders.slm / "model.safetensors.index.json").write_text(json.dumps(index))
    assert ModelFolder(folders.slm).digest == before


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer_config.json"])
def test_a_fifo_is_refused_and_not_waited_for(folders: TinyPair, name: str) -> None:
    (folders.llm / name).unlink()
    os.mkfifo(folders.llm / name)
    assert refusal(folders) == f"{folders.llm}/{name}: not a file, expected one"


@pytest.mark.parametrize(
    ("target", "message"),
    [("nowhere", "no such file"), ("tokenizer_config.json", "cannot be read: ")],
)
def test_a_broken_link_is_refused(folders: TinyPair, target: str, message: str) -> None:
    (folders.llm / "tokenizer_config.json").unlink()
    (folders.llm / "tokenizer_config.json").symlink_to(target)
    assert refusal(folders).startswith(f"{folders.llm}/tokenizer_config.json: {message}")


def test_a_generation_config_that_cannot_be_loaded_is_refused(folders: TinyPair) -> None:
    edit(folders.llm / "generation_config.json", max_new_tokens=[1])
    assert refusal(folders).startswith(f"{folders.llm}: no usable model: TypeError: ")
