"""The embedded pair: how it is trained, and the files that are shipped."""

import json
from itertools import islice
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from benchmarks.corpus import Mix, texts
from benchmarks.pretrain import IGNORED, Recipe, Training, make_pair, pad, train_tokenizer
from citer.data.importing import parse_row
from citer.data.prompts import PlainPrompts, PromptSettings
from citer.demo.knowledge import OTHER_WORLD, TRUTH, Design
from citer.demo.toy import rows
from citer.storage.tables import digest
from tests.tasks import prompt_text

SHIPPED = Path("data/pair")
TASKS = ("math", "mc")


def tiny(hidden_size, facts):
    return Recipe(hidden_size, 1, 2, 32, Mix(facts=facts), Training(steps=4, batch=4))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "pair"
    make_pair(folder, 3, tiny(16, OTHER_WORLD), tiny(32, TRUTH))
    return folder


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(part for text in islice(texts(Mix(TRUTH), 1), 500) for part in text)


def test_a_made_pair_loads_and_its_models_share_one_tokenizer(made):
    files = [(made / name / "tokenizer.json").read_bytes() for name in ("slm", "llm")]
    assert files[0] == files[1]
    tokenizer = PreTrainedTokenizerFast.from_pretrained(made / "slm")
    for name in ("slm", "llm"):
        model = AutoModelForCausalLM.from_pretrained(made / name)
        assert model.generation_config.eos_token_id == tokenizer.eos_token_id
        assert model.config.vocab_size == len(tokenizer)


def test_same_seed_makes_the_same_bytes(made, tmp_path):
    make_pair(tmp_path / "again", 3, tiny(16, OTHER_WORLD), tiny(32, TRUTH))
    for name in ("slm", "llm"):
        assert digest(made / name) == digest(tmp_path / "again" / name)


def test_the_card_names_the_weights_digest_and_the_seed(made):
    card = json.loads((made / "card.json").read_text())
    assert card["seed"] == 3
    for name in ("slm", "llm"):
        assert card[name]["digest"] == digest(made / name / "model.safetensors")


def test_an_interrupted_training_keeps_the_old_pair(made, monkeypatch):
    before = digest(made)
    monkeypatch.setattr("benchmarks.pretrain.write_json", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        make_pair(made, 4, tiny(16, OTHER_WORLD), tiny(32, TRUTH))
    assert digest(made) == before
    assert [path.name for path in made.parent.iterdir()] == [made.name]


def test_no_question_of_the_pipeline_is_learned(monkeypatch):
    monkeypatch.setattr(
        "benchmarks.corpus.rows",
        lambda task, count, seed, part, *world: rows(task, count, seed, "pipeline", *world),
    )
    with pytest.raises(AssertionError, match="leaked"):
        list(islice(texts(Mix(TRUTH), 1), 50))


def test_corpus_is_seeded_and_holds_every_kind_of_text():
    drawn = list(islice(texts(Mix(TRUTH), 1), 200))
    assert drawn == list(islice(texts(Mix(TRUTH), 1), 200))
    assert {text.prompt[:6] for text in drawn} == {"", "Solve ", "Choose"}


def test_a_corpus_has_the_design_of_its_pair():
    prompted = (text for text in texts(Mix(TRUTH), 1, Design(openings=1)) if text.prompt)
    assert all(text.completion.lstrip().startswith("Again, ") for text in islice(prompted, 50))


def test_tokenizer_splits_digits_and_keeps_option_letters_whole(tokenizer):
    pieces = [tokenizer.decode(i) for i in tokenizer("(B) 407 figs (b).").input_ids]
    assert pieces == ["(", "B", ")", " ", "4", "0", "7", " figs", " (", "b", ")", "."]


@pytest.mark.parametrize("text", ["Żółw, ½ · 3\t= 1.5?", "  two  spaces\n\n", "\\boxed{12}.", ""])
def test_tokenizer_gives_back_any_text(tokenizer, text):
    assert tokenizer.decode(tokenizer(text).input_ids) == text


def test_only_tokens_of_the_completion_are_labels():
    ids_BT, labels_BT = pad([([5, 6, 7, 8, 9], 2), ([5, 6, 7], 0)])
    assert ids_BT.tolist() == [[5, 6, 7, 8, 9], [5, 6, 7, 0, 0]]
    assert labels_BT.tolist() == [
        [IGNORED, 7, 8, 9, IGNORED],
        [6, 7, IGNORED, IGNORED, IGNORED],
    ]


def test_the_shipped_pair_is_small_and_agrees_with_its_card():
    assert sum(f.stat().st_size for f in SHIPPED.rglob("*") if f.is_file()) <= 20e6
    card = json.loads((SHIPPED / "card.json").read_text())
    for name in ("slm", "llm"):
        assert card[name]["digest"] == digest(SHIPPED / name / "model.safetensors")


@pytest.mark.parametrize("task", TASKS)
def test_shipped_tokenizer_round_trips_the_pipelines_rows(task):
    tokenizer = PreTrainedTokenizerFast.from_pretrained(SHIPPED / "slm")
    prompts = PlainPrompts(PromptSettings(), tokenizer, [tokenizer.eos_token_id])
    for row in rows(task, 300, 11, "pipeline"):
        problem = parse_row(row, task, "reference")
        encoded = prompts.encode(problem)
        assert tokenizer.decode(encoded.prompt_ids) == prompt_text(problem)
        assert tokenizer.decode(encoded.reference_ids[:-1]) == problem.reference
        assert max(encoded.prompt_ids + encoded.reference_ids) < len(tokenizer)
