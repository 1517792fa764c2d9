"""Which tokenizers are refused, and which settings change no ids."""

import json

import pytest

from citer.data.prompts import token_ids
from citer.errors import InputError
from citer.models.folder import ModelFolder, PairFolder
from tests import tiny
from tests.models.conftest import edit, refusal
from tests.tiny import TinyPair

UNUSED = {
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


def test_settings_that_encoding_does_not_use_change_nothing(folders: TinyPair) -> None:
    ids = token_ids("What is 2 + 2?", ModelFolder(folders.slm).tokenizer, begins=True)
    edit(folders.llm / "tokenizer.json", **UNUSED)
    edit(folders.llm / "tokenizer_config.json", split_special_tokens=True, model_max_length=4)
    PairFolder(*folders)
    assert token_ids("What is 2 + 2?", ModelFolder(folders.llm).tokenizer, begins=True) == ids


def test_a_tokenizer_that_loses_text_is_refused(folders: TinyPair) -> None:
    edit(folders.slm / "tokenizer.json", normalizer={"type": "Lowercase"})
    with pytest.raises(InputError, match=r"the tokenizer turns 'Problem"):
        assert ModelFolder(folders.slm).tokenizer


@pytest.mark.parametrize("number", [1000, 2**31])
def test_an_id_beyond_the_models_vocabulary_is_refused(folders: TinyPair, number: int) -> None:
    """This is refused before the tokenizers' parts are compared, which would take minutes."""
    tokenizer = json.loads((folders.llm / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"]["a"] = number
    (folders.llm / "tokenizer.json").write_text(json.dumps(tokenizer))
    assert f"llm/tokenizer.json: 'a' has the id {number}, expected one below" in refusal(folders)


def test_a_tokenizer_that_cannot_encode_is_refused(folders: TinyPair) -> None:
    edit(folders.llm / "tokenizer_config.json", model_max_length="many")
    assert refusal(folders).startswith(f"{folders.llm}: no usable tokenizer: TypeError(")
