"""Two folders form a pair only with one tokenizer, one EOS set and different weights."""

import json
from pathlib import Path

import pytest

from citer.models.folder import ModelFolder, PairFolder
from tests import tiny
from tests.models.conftest import edit, refusal
from tests.tiny import TinyPair


def test_another_tokenizer_is_refused_naming_both(folders: TinyPair) -> None:
    tokenizer = json.loads((folders.llm / "tokenizer.json").read_text())
    tokenizer["model"]["merges"].pop()
    (folders.llm / "tokenizer.json").write_text(json.dumps(tokenizer))
    assert (
        refusal(folders)
        == f"{folders.slm} and {folders.llm}: different tokenizers: their `model` differ"
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


def test_a_pair_in_which_only_one_tokenizer_adds_bos_is_refused(
    folders: TinyPair,
) -> None:
    before = ModelFolder(folders.llm).tokenizer_digest
    add_bos(folders.llm)
    assert "different tokenizers: their `prompt` differ" in refusal(folders)
    assert ModelFolder(folders.llm).tokenizer_digest != before
    add_bos(folders.slm)
    pair = PairFolder(*folders)
    assert pair.slm.tokenizer_digest == pair.llm.tokenizer_digest


@pytest.mark.parametrize("name", ["slm", "link", "links"])
def test_two_copies_of_one_model_are_refused(folders: TinyPair, tmp_path: Path, name: str) -> None:
    (tmp_path / "link").symlink_to(folders.slm)
    (tmp_path / "links").mkdir()
    for file in folders.slm.iterdir():
        (tmp_path / "links" / file.name).symlink_to(file)
    twin = TinyPair(folders.slm, tmp_path / name)
    assert refusal(twin) == f"{twin.slm} and {twin.llm}: the same weights, expected two models"


def test_another_eos_is_refused_naming_both(folders: TinyPair) -> None:
    edit(folders.llm / "generation_config.json", eos_token_id=[5, 7])
    assert refusal(folders).startswith(f"{folders.slm} and {folders.llm}: different EOS ids: [")


def test_eos_ids_are_a_set_whose_order_and_repetitions_do_not_matter(folders: TinyPair) -> None:
    before = ModelFolder(folders.slm).tokenizer_digest
    edit(folders.slm / "generation_config.json", eos_token_id=[0, 5, 0])
    edit(folders.llm / "generation_config.json", eos_token_id=[5, 0])
    pair = PairFolder(*folders)
    assert pair.slm.eos_ids == (0, 5)
    assert before != pair.slm.tokenizer_digest == pair.llm.tokenizer_digest
