"""Input that `citer generate` refuses before it loads a model or writes a file."""

import json
from pathlib import Path

import pytest

from citer.errors import InputError
from citer.models.bundle import write_bundle
from citer.models.router import Head, Router
from citer.rule import Rule
from citer.serving.deployment import Deployment
from citer.serving.generate import generate
from tests.generate.project import LONG, MATH, Project, own_pair, parsed


def test_a_bundle_without_a_rule_asks_for_one(project: Project) -> None:
    router = Router({"stand": Head(None), "agree": Head(None)})
    write_bundle(project.bundle, router, own_pair(project.params).identity)
    with pytest.raises(InputError, match=r"no rule in router\.json: give --rule"):
        project.generate()


def test_a_bad_row_leaves_no_output(project: Project) -> None:
    project.write([MATH[1], {"problem": 3}])
    with pytest.raises(InputError, match=r"q\.jsonl:2: problem: 3"):
        project.generate()
    assert not project.output.exists()


def test_answers_do_not_overwrite_the_questions(project: Project) -> None:
    source, before = project.source, project.source.read_bytes()
    with pytest.raises(InputError, match=r"q\.jsonl: expected another file than the input"):
        generate(project.params, project.bundle, source, source, Rule("risk", 0.5, 0.1))
    assert source.read_bytes() == before


def test_an_slm_that_has_changed_is_refused_before_a_model_is_loaded(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("citer.serving.deployment.load_pair", None)
    weights = Path("data/models/slm/model.safetensors")
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(InputError, match="made for the SLM data/models/slm"):
        project.generate()


def test_a_question_without_room_for_its_answer_is_refused_with_file_line_and_key(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.source.write_text("\n\n".join(json.dumps(row) for row in (*MATH, LONG)))
    monkeypatch.setattr("citer.serving.generate.deploy", None)  # loading a model would fail
    expected = (
        rf"^{project.source}:7: \d+ tokens and up to 12 more \(answer\.max_new_tokens\), "
        "expected at most 1024, the models' context$"
    )
    with pytest.raises(InputError, match=expected):
        project.generate()
    assert not project.output.exists()


def test_an_output_that_cannot_be_written_is_refused_before_a_models_folder_is_read(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, folder = project.source, project.folder
    monkeypatch.setattr("citer.serving.generate.served_pair", None)
    for place in (Path(""), folder, Path("/proc/x"), source / "x"):
        with pytest.raises(InputError, match=r"not a file|cannot be written"):
            generate(project.params, project.bundle, source, place, Rule("risk", 0.5, audit=0.1))
    assert {path.name for path in folder.iterdir()} == {"q.jsonl", "bundle", "data", "pair"}


def test_a_file_of_no_known_task_is_refused(project: Project) -> None:
    project.source.write_text('\n{"prompt": "2 + 2?"}')
    with pytest.raises(InputError) as caught:
        project.generate()
    found = f"{project.source}:2: row: {{'prompt': '2 + 2?'}}; expected `problem` (math), "
    assert str(caught.value).startswith(found)
    assert str(caught.value).endswith(" or `question` (mc), or a `task`")


def test_a_row_of_a_task_that_the_router_was_not_trained_on_is_refused_by_name(
    of_numbers: Project,
) -> None:
    of_numbers.write([MATH[1] | {"task": "math"}])
    with pytest.raises(InputError, match=r"task: 'math'; expected 'exact', 'number'$"):
        of_numbers.generate()


def test_a_question_that_is_too_long_is_refused(deployment: Deployment) -> None:
    *short, long = parsed([*MATH, LONG])
    for problem in short:
        deployment.check(problem)
    with pytest.raises(InputError, match=r"^question: \d+ tokens and up to 12 more"):
        deployment.check(long)


def test_a_question_that_is_far_too_long_is_refused_before_it_is_encoded(
    deployment: Deployment, project: Project
) -> None:
    endless = {"problem": "Why?" * 2_500_000}
    message = "10,000,000 characters, expected at most 16,384, 16 for each token of the models'"
    with pytest.raises(InputError, match=f"^question: {message}"):
        deployment.check(*parsed([endless]))
    project.write([*MATH, endless])
    with pytest.raises(InputError, match=f"q.jsonl:{len(MATH) + 1}: {message}"):
        project.generate()
    assert not project.output.exists()
