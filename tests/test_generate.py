"""`citer generate`: the last step, on a tiny pair."""

import json
from pathlib import Path

import pytest
import torch

from citer.config import Params, load_params
from citer.decoding.engine import Engine, Request
from citer.decoding.policy import routed
from citer.errors import InputError
from citer.generate import generate
from citer.models.bundle import identity, read_bundle, write_bundle
from citer.models.pair import load_pair
from citer.models.router import Router, RouterMLP
from tests.tiny import make_tiny_pair

MATH = [
    {"problem": "What is 3 + 4?", "solution": "It is \\boxed{7}."},
    {"problem": "What is 2 * 5?"},
    {"problem": "What is 9 - 1?", "answer": "8"},
]
MC = [
    {
        "question": "Which is a planet?",
        "choices": {"text": ["Mars", "the Sun"], "label": ["1", "2"]},
        "answerKey": "1",
    }
]


@pytest.fixture
def params(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Params:
    """A project folder with a finetuned SLM in its place; few and short answers."""
    loaded = load_params()
    slm, llm = make_tiny_pair(tmp_path / "pair")
    monkeypatch.chdir(tmp_path)
    Path("data/models").mkdir(parents=True)
    slm.rename("data/models/slm")
    pair = loaded.pair.model_copy(update={"llm": str(llm), "slm": str(slm)})
    limits = loaded.evaluate.model_copy(update={"slots": 2, "max_new_tokens": 12})
    return loaded.model_copy(update={"pair": pair, "evaluate": limits})


@pytest.fixture
def bundle(params: Params, tmp_path: Path) -> Path:
    torch.manual_seed(0)
    pair = load_pair(Path("data/models/slm"), Path(params.pair.llm), params.pair)
    router = Router(RouterMLP(pair.slm.hidden_size, dropout=0.1).eval(), slope=9.0)
    card = identity(pair) | {"threshold": {"tau": 0.5}}
    write_bundle(tmp_path / "bundle", router, card)
    return tmp_path / "bundle"


def answers(output: Path) -> list[dict]:
    return [json.loads(line) for line in output.read_text().splitlines()]


def test_every_question_is_answered_in_order_and_graded_where_it_can_be(
    params: Params, bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, output = tmp_path / "questions.jsonl", tmp_path / "out.jsonl"
    source.write_text("\n".join(json.dumps(row) for row in MATH))
    generate(params, bundle, source, output, tau=None)
    lines = answers(output)
    assert [line["question"] for line in lines] == [row["problem"] for row in MATH]
    assert [line["correct"] is None for line in lines] == [False, True, False]
    assert "3 answers at τ 0.5, 0 of 2 right" in " ".join(capsys.readouterr().out.split())


def test_tokens_and_origins_are_the_engines(params: Params, bundle: Path, tmp_path: Path) -> None:
    source, output = tmp_path / "mc.json", tmp_path / "out.jsonl"
    source.write_text(json.dumps(MC))
    generate(params, bundle, source, output, tau=None)
    [line] = answers(output)
    pair = load_pair(Path("data/models/slm"), Path(params.pair.llm), params.pair)
    prompt = "Choose the right option and name its letter.\nQuestion: Which is a planet?\n"
    ids = pair.tokenizer(prompt + "(1) Mars\n(2) the Sun\nAnswer:\n").input_ids
    policy = routed(read_bundle(bundle)[0], tau=0.5)
    [expected] = Engine(pair, 1, 12).decode([Request("one", tuple(ids))], policy)
    assert [token["by"] == "llm" for token in line["tokens"]] == list(expected.by_llm)
    texts = [pair.tokenizer.decode([token]) for token in expected.token_ids]
    assert [token["text"] for token in line["tokens"]] == texts
    assert line["llm_fraction"] == sum(expected.by_llm) / len(expected.by_llm)


@pytest.mark.parametrize(("tau", "share"), [(0.0, 0.0), (1.0, 1.0)])
def test_a_given_threshold_stands_in_for_the_bundles(
    params: Params, bundle: Path, tmp_path: Path, tau: float, share: float
) -> None:
    source, output = tmp_path / "q.jsonl", tmp_path / "out.jsonl"
    source.write_text(json.dumps(MATH[1]))
    generate(params, bundle, source, output, tau)
    assert answers(output)[0]["llm_fraction"] == share


def test_a_bundle_without_a_threshold_asks_for_one(params: Params, tmp_path: Path) -> None:
    pair = load_pair(Path("data/models/slm"), Path(params.pair.llm), params.pair)
    write_bundle(tmp_path / "bare", Router(None), identity(pair))
    source = tmp_path / "q.jsonl"
    source.write_text(json.dumps(MATH[1]))
    with pytest.raises(InputError, match=r"no τ in router\.json: give --tau"):
        generate(params, tmp_path / "bare", source, tmp_path / "out.jsonl", tau=None)


def test_a_bad_row_leaves_no_output(params: Params, bundle: Path, tmp_path: Path) -> None:
    source, output = tmp_path / "q.jsonl", tmp_path / "out.jsonl"
    source.write_text(json.dumps(MATH[1]) + "\n" + json.dumps({"problem": 3}))
    with pytest.raises(InputError, match=r"q\.jsonl:2: problem: 3"):
        generate(params, bundle, source, output, tau=None)
    assert not output.exists()


def test_an_slm_that_was_trained_since_is_refused(
    params: Params, bundle: Path, tmp_path: Path
) -> None:
    weights = Path("data/models/slm/model.safetensors")
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    source = tmp_path / "q.jsonl"
    source.write_text(json.dumps(MATH[1]))
    with pytest.raises(InputError, match="made for the SLM data/models/slm"):
        generate(params, bundle, source, tmp_path / "out.jsonl", tau=None)
