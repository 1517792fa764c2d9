"""Two folders form a pair only with one tokenizer and different weights."""

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
    expected = f"{folders.slm} and {folders.llm}: different tokenizers: their `model` differs"
    assert refusal(folders) == expected


def add_bos(folder: Path) -> None:
    begin = {"SpecialToken": {"id": tiny.EOS, "type_id": 0}}
    text = {"Sequence": {"id": "A", "type_id": 0}}
    processor = {
        "type": "TemplateProcessing",
        "single": [begin, text],
        "pair": [begin, text, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {tiny.EOS: {"id": tiny.EOS, "ids": [0], "tokens": [tiny.EOS]}},
    }
    edit(folder / "tokenizer.json", post_processor=processor)


def test_a_pair_in_which_only_one_tokenizer_adds_bos_is_refused(folders: TinyPair) -> None:
    before = PairFolder(*folders).tokenizer_digest
    add_bos(folders.llm)
    assert "different tokenizers: their `prompt` differs" in refusal(folders)
    add_bos(folders.slm)
    assert PairFolder(*folders).tokenizer_digest != before


@pytest.mark.parametrize("name", ["slm", "link", "links"])
def test_two_copies_of_one_model_are_refused(folders: TinyPair, tmp_path: Path, name: str) -> None:
    (tmp_path / "link").symlink_to(folders.slm)
    (tmp_path / "links").mkdir()
    for file in folders.slm.iterdir():
        (tmp_path / "links" / file.name).symlink_to(file)
    twin = TinyPair(folders.slm, tmp_path / name)
    assert refusal(twin) == f"{twin.slm} and {twin.llm}: the same weights, expected two models"


def test_a_pair_ends_answers_at_the_eos_ids_of_both_models(folders: TinyPair) -> None:
    before = PairFolder(*folders).tokenizer_digest
    edit(folders.slm / "generation_config.json", eos_token_id=[5, 0, 5])
    edit(folders.llm / "generation_config.json", eos_token_id=[7, 5])
    pair = PairFolder(*folders)
    assert pair.eos_ids == pair.vocabulary.eos_ids == (5, 0, 7)
    assert pair.prompts.eos_id == 5
    ours = pair.tokenizer_digest
    edit(folders.llm / "generation_config.json", eos_token_id=[0, 7])
    assert before != ours == PairFolder(*folders).tokenizer_digest


def test_another_single_eos_changes_the_tokenizers_digest(folders: TinyPair) -> None:
    before = PairFolder(*folders).tokenizer_digest
    for path in folders:
        for file in ("config.json", "generation_config.json"):
            edit(path / file, eos_token_id=5)
        edit(path / "tokenizer_config.json", eos_token=ModelFolder(path).tokenizer.decode([5]))
    pair = PairFolder(*folders)
    assert pair.eos_ids == (5,)
    assert pair.tokenizer_digest != before


def test_the_embedded_pair_keeps_its_identity() -> None:
    pair = PairFolder(*(Path(__file__).parents[2] / "data/pair" / name for name in ("slm", "llm")))
    assert pair.eos_ids == (0,)
    assert pair.tokenizer_digest == "929295059863bbdbcc8961bd05cca126"
    assert pair.prompts.digest == "1844eccbeb2e4866"
