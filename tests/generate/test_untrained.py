"""Rules that ask no trained head route between the pair that params.yaml names."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from citer.cli.main import call
from citer.config.params import Params
from citer.data.importing import parse_question, parse_row
from citer.data.tasks import find_task
from citer.decoding.answer import Request
from citer.decoding.engine import Engine
from citer.decoding.policy import LLM_ALONE
from citer.errors import InputError
from citer.models.bundle import read_bundle, read_card
from citer.rule import Rule
from citer.serving.deployment import stored_rule
from citer.serving.generate import generate
from citer.serving.untrained import folder_params, untrained
from citer.storage.tables import read_json, write_json
from tests.generate.project import MATH, MAX_NEW_TOKENS, Project, answers, own_pair
from tests.tiny import make_tiny_pair


@pytest.fixture
def based(project: Project) -> Params:
    """The project with the base SLM in place: here it is the finetuned one."""
    pair = project.params.pair.model_copy(update={"slm": "data/models/slm"})
    return project.params.model_copy(update={"pair": pair})


@pytest.mark.parametrize(
    "rule", ["every 3 audit 1", "risk 0.7 audit 1", "every 4 audit 1 from lookup"]
)
def test_an_exact_rule_without_a_router_gives_the_llms_own_text(
    based: Params, project: Project, rule: str
) -> None:
    with untrained(based, Rule.parse(rule)) as bundle:
        lines = replace(project, params=based, bundle=bundle).generate()
    pair = own_pair(based)
    engine = Engine(pair, 1, MAX_NEW_TOKENS)
    for line in lines:
        problem = parse_row({"problem": line["question"]}, "math", "question", source="own")
        ids = tuple(pair.prompts.prompt_ids(problem))
        [own] = engine.decode([Request("q", ids)], LLM_ALONE)
        assert line["completion"] == pair.text(own.token_ids)


def test_certainty_scores_where_a_rule_names_no_scorer(based: Params) -> None:
    with untrained(based, Rule.parse("risk 0.7 audit 1")) as bundle:
        assert stored_rule(bundle) == Rule.parse("risk 0.7 audit 1 by probability")
        assert read_card(bundle).slm.id == "data/models/slm"
        assert read_bundle(bundle)[0].heads["none"].mlp is None
    assert not bundle.exists()


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (None, "--router or --rule: expected one"),
        ("risk 0.7 by narrow", "no scorer `narrow`; expected one of entropy, probability"),
    ],
)
def test_a_rule_that_needs_a_head_is_refused(
    based: Params, rule: str | None, expected: str
) -> None:
    with pytest.raises(InputError, match=expected), untrained(based, rule and Rule.parse(rule)):
        pass


def test_two_folders_are_served_without_a_project(
    based: Params, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answers are those of a project with the same settings."""
    folders = [str(Path(each).absolute()) for each in (based.pair.slm, based.pair.llm)]
    source, output = tmp_path / "questions.jsonl", tmp_path / "out.jsonl"
    source.write_text("\n".join(json.dumps({"question": row["problem"]}) for row in MATH))
    monkeypatch.chdir(tmp_path)
    named = ["--slm", folders[0], "--llm", folders[1], "--rule", "every 3 audit 1"]
    assert call(["generate", "--input", str(source), "--output", str(output), *named]) == 0
    params = folder_params(*map(Path, folders))
    assert (params.pair.prompt, params.pair.dtype) == ("plain", "bfloat16")
    asked = parse_question({"question": "Why is the sky blue?"}, params.prompts.tasks)
    assert find_task(asked.task).message_text(asked) == "Why is the sky blue?"
    again = tmp_path / "again.jsonl"
    with untrained(params, Rule.parse("every 3 audit 1")) as bundle:
        generate(params, bundle, source, again)
    assert answers(output) == answers(again)
    link, target = tmp_path / "link.jsonl", tmp_path / "target.jsonl"
    link.symlink_to(target)
    assert call(["generate", "--input", str(source), "--output", str(link), *named]) == 0
    assert link.is_symlink()
    assert answers(target) == answers(again)
    assert call(["generate", "--input", str(source), "--output", "o", *named[:2]]) == 2
    # A router has its own SLM.
    both = [*named, "--router", "models:/citer-router@champion"]
    assert call(["generate", "--input", str(source), "--output", "o", *both]) == 2


def test_a_folder_with_a_chat_template_is_asked_by_it(tmp_path: Path) -> None:
    slm, llm = make_tiny_pair(tmp_path)
    (llm / "chat_template.jinja").write_text("{{ messages }}")
    assert folder_params(slm, llm).pair.prompt == "chat"


def test_an_answer_of_two_folders_leaves_room_for_a_prompt(tmp_path: Path) -> None:
    slm, llm = make_tiny_pair(tmp_path)
    assert folder_params(slm, llm).answer.max_new_tokens == 512
    config = read_json(slm / "config.json") | {"max_position_embeddings": 300}
    write_json(slm / "config.json", config)
    assert folder_params(slm, llm).answer.max_new_tokens == 150
