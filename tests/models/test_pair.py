"""A loaded pair: vocabulary, bytes, device, identity."""

from pathlib import Path

import pytest
import torch
from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer

from citer.config.params import PairParams
from citer.errors import InputError
from citer.models.folder import ModelFolder, PairFolder
from citer.models.pair import load_model, load_pair
from tests.models.conftest import edit, refusal
from tests.tiny import TinyPair


def params(pair: TinyPair, dtype: str = "float32", device: str = "cpu") -> PairParams:
    return PairParams(slm=str(pair.slm), llm=str(pair.llm), device=device, dtype=dtype)


def test_padded_vocabularies_of_one_tokenizer_are_fine(folders: TinyPair, tmp_path: Path) -> None:
    pair = load_pair(PairFolder(*folders), params(folders))
    pair.llm.network.resize_token_embeddings(pair.llm.vocab_size + 24, mean_resizing=False)
    pair.llm.network.save_pretrained(folders.llm)
    padded = load_pair(PairFolder(*folders), params(folders))
    assert padded.llm.vocab_size == padded.slm.vocab_size + 24
    assert padded.vocabulary.size == padded.slm.vocab_size


def test_an_eos_beyond_the_smaller_vocabulary_is_refused(folders: TinyPair) -> None:
    pair = load_pair(PairFolder(*folders), params(folders))
    size = pair.llm.vocab_size
    pair.llm.network.resize_token_embeddings(size + 24, mean_resizing=False)
    pair.llm.network.save_pretrained(folders.llm)
    edit(folders.llm / "generation_config.json", eos_token_id=[0, size + 1])
    assert f"EOS {size + 1}: expected ids below {size}" in refusal(folders)


def test_a_transformers_that_computes_other_states_is_refused_at_load(
    folders: TinyPair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Qwen2DecoderLayer, "forward", lambda self, hidden_BTH, **_: hidden_BTH)
    with pytest.raises(InputError, match=rf"^{folders.slm}: transformers \S+ computes other"):
        load_model("slm", ModelFolder(folders.slm), params(folders))


def test_bytes_of_weights_and_cache_follow_from_the_shapes(folders: TinyPair) -> None:
    """The tiny SLM by hand: hidden 32, ffn 64, 4 heads of 8, 2 key-value heads, one layer."""
    model = load_model("slm", ModelFolder(folders.slm), params(folders))
    attention = (32 * 32 + 32) + 2 * (32 * 16 + 16) + 32 * 32
    layer = attention + 3 * 32 * 64 + 2 * 32
    head = 32 * model.vocab_size  # the untied input embedding is not read whole
    assert model.weight_bytes == 4 * (layer + 32 + head)
    assert model.kv_bytes == 4 * 2 * 2 * 8
    half = load_model("slm", ModelFolder(folders.slm), params(folders, "bfloat16"))
    assert half.kv_bytes == 2 * 2 * 2 * 8


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("bfloat16", torch.float32), ("float32", torch.float32), ("float64", torch.float64)],
)
def test_logits_are_in_float32_at_least(
    folders: TinyPair, dtype: str, expected: torch.dtype
) -> None:
    model = load_model("slm", ModelFolder(folders.slm), params(folders, dtype))
    assert model.logits(torch.zeros(1, model.hidden_size, dtype=model.dtype)).dtype == expected
