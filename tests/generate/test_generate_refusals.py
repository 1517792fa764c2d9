"""Input that `citer generate` refuses before it loads a model or writes a file."""

import json
import re
from pathlib import Path

import pytest

from citer.config.params import Params
from citer.errors import InputError
from citer.models.bundle import write_bundle
from citer.models.router import Head, Router
from citer.rule import Rule
from citer.serving.deployment import Deployment
from citer.serving.generate import generate
from tests.generate.project import (
    LONG,
    MATH,
    own_pair,
    parsed,
)


def test_a_bundle_without_a_rule_asks_for_one(params: Params, tmp_path: Path) -> None:
    write_bundle(
        tmp_path / "bare",
        Router({"stand": Head(None), "agree": Head(None)}),
        own_pair(params).identity,
    )
    source = tmp_path / "q.jsonl"
    source.write_text(json.dumps(MATH[1]))
    with pytest.raises(InputError, match=r"no rule in router\.json: give --rule"):
        generate(params, tmp_path / "bare", source, tmp_path / "out.jsonl")


def test_a_bad_row_leaves_no_output(params: Params, bundle: Path, tmp_path: Path) -> None:
    source, output = tmp_path / "q.jsonl", tmp_path / "out.jsonl"
    source.write_text(json.dumps(MATH[1]) + "\n" + json.dumps({"problem": 3}))
    with pytest.raises(InputError, match=r"q\.jsonl:2: problem: 3"):
        generate(params, bundle, source, output)
    assert not output.exists()


def test_answers_do_not_overwrite_the_questions(
    params: Params, bundle: Path, tmp_path: Path
) -> None:
    source = tmp_path / "q.jsonl"
    source.write_text(json.dumps(MATH[1]))
    with pytest.raises(InputError, match=r"q\.jsonl: expected another file than the input"):
        generate(params, bundle, source, source, Rule("risk", 0.5, 0.1))
    assert source.read_text() == json.dumps(MATH[1])


def test_an_slm_that_has_changed_is_refused_before_a_model_is_loaded(
    params: Params, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("citer.serving.deployment.load_pair", None)
    weights = Path("data/models/slm/model.safetensors")
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    source = tmp_path / "q.jsonl"
    source.write_text(json.dumps(MATH[1]))
    with pytest.raises(InputError, match="made for the SLM data/models/slm"):
        generate(params, bundle, source, tmp_path / "out.jsonl")


def test_a_question_without_room_for_its_answer_is_refused_with_file_line_and_key(
    params: Params, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, output = tmp_path / "q.jsonl", tmp_path / "out.jsonl"
    source.write_text("\n\n".join(json.dumps(row) for row in (*MATH, LONG)))
    monkeypatch.setattr("citer.serving.generate.deploy", None)  # loading a model would fail
    with pytest.raises(InputError) as caught:
        generate(params, bundle, source, output)
    assert re.fullmatch(
        rf"{source}:7: \d+ tokens and up to 12 more \(answer\.max_new_tokens\), "
        "expected at most 1024, the models' context",
        str(caught.value),
    )
    assert not output.exists()


def test_an_output_that_cannot_be_written_is_refused_before_a_models_folder_is_read(
    params: Params, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "q.jsonl"
    source.write_text(json.dumps(MATH[0]))
    monkeypatch.setattr("citer.serving.generate.served_pair", None)
    for place in (Path(""), tmp_path, Path("/proc/x"), source / "x"):
        with pytest.raises(InputError, match=r"not a file|cannot be written"):
            generate(params, bundle, source, place, Rule("risk", 0.5, audit=0.1))
    assert {path.name for path in tmp_path.iterdir()} == {"q.jsonl", "bundle", "data", "pair"}


def test_a_file_of_no_known_task_is_refused(params: Params, bundle: Path, tmp_path: Path) -> None:
    source = tmp_path / "q.jsonl"
    source.write_text('\n{"prompt": "2 + 2?"}')
    with pytest.raises(InputError) as caught:
        generate(params, bundle, source, tmp_path / "out.jsonl")
    found = f"{source}:2: row: {{'prompt': '2 + 2?'}}; expected `problem` (math), "
    assert str(caught.value).startswith(found)
    assert str(caught.value).endswith(" or `question` (mc), or a `task`")


def test_a_row_of_a_task_that_the_router_was_not_trained_on_is_refused_by_name(
    params: Params, number_bundle: Path, tmp_path: Path
) -> None:
    source = tmp_path / "q.jsonl"
    source.write_text(json.dumps(MATH[1] | {"task": "math"}))
    with pytest.raises(InputError, match=r"task: 'math'; expected 'exact', 'number'$"):
        generate(params, number_bundle, source, tmp_path / "out.jsonl")


def test_a_question_that_is_too_long_is_refused(deployment: Deployment) -> None:
    *short, long = parsed([*MATH, LONG])
    for problem in short:
        deployment.check(problem)
    with pytest.raises(InputError, match=r"^question: \d+ tokens and up to 12 more"):
        deployment.check(long)


def test_a_question_that_is_far_too_long_is_refused_before_it_is_encoded(
    deployment: Deployment, params: Params, bundle: Path, tmp_path: Path
) -> None:
    endless = {"problem": "Why?" * 2_500_000}
    message = "10,000,000 characters, expected at most 16,384, 16 for each token of the models'"
    with pytest.raises(InputError, match=f"^question: {message}"):
        deployment.check(*parsed([endless]))
    source, output = tmp_path / "q.jsonl", tmp_path / "out.jsonl"
    source.write_text("\n".join(json.dumps(row) for row in (*MATH, endless)))
    with pytest.raises(InputError, match=f"q.jsonl:{len(MATH) + 1}: {message}"):
        generate(params, bundle, source, output)
    assert not output.exists()
