"""dvc.yaml against the code: each step has one name, and every dependency is listed."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from citer.cli.stages import COMMANDS
from citer.config.params import EvaluateParams, Params, load_params
from citer.stages import paths
from flows.dvc_commands import dvc
from flows.repro import stage_graph

PIPELINE: dict[str, Any] = YAML(typ="safe").load(Path("dvc.yaml"))
STAGE_FOLDER = Path("citer/stages")
WITHOUT_SECTION = {"code", "probe", "router0", "rivals", "choose", "transcribe", "report"}
WITHOUT_SECTION |= {"score_llm", "score_slm"}  # both read `score`
SHARED = {"__init__", "asked", "budget", "certify", "folders", "lessons", "origin", "own", "paths"}
SHARED.add("traffic")  # modules that are no stage
WORKERS = "workers"  # changes no result
# Sections that several stages share, those of no stage, and the side effect `register`, which
# must not be cached.
OUTSIDE_DVC = {"iterations", "seed", "pair", "decode", "score", "serve", "answer", "register"}
OUTSIDE_DVC.add(WORKERS)

every_stage = pytest.mark.parametrize("name", PIPELINE["stages"])


def stage(name: str) -> dict[str, Any]:
    """Return a stage of dvc.yaml, the template if it has iterations."""
    entry = PIPELINE["stages"][name]
    return entry.get("do", entry)


def command(name: str) -> str:
    """Return the command of a stage, which is also its module. `choose0` is `citer choose 0`."""
    return str(stage(name)["cmd"].split()[1])


def settings(name: str) -> set[str]:
    """Return the settings and whole sections of params.yaml that a stage depends on."""
    return {entry for entry in stage(name).get("params", []) if isinstance(entry, str)}


def sections(name: str) -> set[str]:
    """Return the sections of params.yaml that a stage depends on, wholly or in part."""
    return {text.partition(".")[0] for text in settings(name)}


@every_stage
def test_a_stage_has_one_name_as_module_command_and_params_section(name: str) -> None:
    own = command(name)
    assert own in {each.__name__ for each in COMMANDS}
    assert (STAGE_FOLDER / f"{own}.py").is_file()
    assert name in (own, f"{own}0")
    assert (own in load_params().model_dump(by_alias=True)) == (own not in WITHOUT_SECTION)


def test_there_is_no_section_module_or_command_without_a_stage() -> None:
    names = {command(name) for name in PIPELINE["stages"]}
    modules = {file.stem for file in STAGE_FOLDER.glob("*.py")} - SHARED
    sections = {field.alias or key for key, field in Params.model_fields.items()} - OUTSIDE_DVC
    assert modules == names
    assert sections == names - WITHOUT_SECTION
    assert len(COMMANDS) == len(names)


def test_dvc_lists_every_stage_of_every_iteration() -> None:
    expected = {
        full
        for name, entry in PIPELINE["stages"].items()
        for full in (
            [f"{name}@{key}" for key in load_params().iterations] if "foreach" in entry else [name]
        )
    }
    assert set(stage_graph()) == expected


def test_every_later_stage_waits_for_the_probe_but_none_for_its_answers() -> None:
    waiting, found = {"probe"}, 0
    edges = re.findall(r'"([^"]+)" -> "([^"]+)"', dvc("dag", "--dot"))
    while len(waiting) > found:
        found = len(waiting)
        waiting |= {later for earlier, later in edges if earlier in waiting}
    assert waiting == {*stage_graph()} - {"code", "prepare"}
    deps = {name: stage(name).get("deps", []) for name in PIPELINE["stages"]}
    answers = {name for name in deps if str(paths.PROBED) in deps[name]}
    assert not answers


def test_rounding_the_slm_makes_only_what_it_computes_stale() -> None:
    stale = {name for name in PIPELINE["stages"] if "pair.slm_weights" in settings(name)}
    precise = {name for name in PIPELINE["stages"] if "pair.dtype" in settings(name)}
    assert precise - stale == {"references", "score_llm", "finetune"}
    assert stale < precise


def test_finetuning_depends_on_nothing_of_the_llm() -> None:
    assert "llm" not in str(stage("finetune"))


def test_iterations_are_listed_only_in_params_yaml() -> None:
    for name, entry in PIPELINE["stages"].items():
        looped = "foreach" in entry
        assert entry.get("foreach") == ("${iterations}" if looped else None)
        assert not re.search(r"data/\w+/[1-9]", str(entry)), name


@every_stage
def test_a_stage_depends_on_the_digest_of_its_own_code(name: str) -> None:
    files = [entry for entry in stage(name).get("params", []) if not isinstance(entry, str)]
    assert files == ([] if name == "code" else [{paths.CODE.as_posix(): [command(name)]}])


# What gets all parameters from a stage, and the files that read them.
GIVEN = {
    "Asked": ["stages/asked.py", "evaluation/study.py", "evaluation/bounds.py"],
    "score_half": ["labelling/scoring.py"],
    "transcript": ["report/decoded.py"],
}


@every_stage
def test_a_stage_depends_on_the_sections_of_params_that_it_reads(name: str) -> None:
    own = (STAGE_FOLDER / f"{command(name)}.py").read_text()
    given = [files for imported, files in GIVEN.items() if f"import {imported}\n" in own]
    shared = ((STAGE_FOLDER.parent / file).read_text() for files in given for file in files)
    read = {
        node.attr
        for code in (own, *shared)
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value).endswith("params")
    } & set(Params.model_fields)
    assert sections(name) == read - {WORKERS}


def test_another_place_to_serve_answers_and_chooses_anew() -> None:
    """Its cost decides which rules are worth a test, and which is the cheapest."""
    place = {"serve.engine", "serve.batch", "serve.cap"}  # not how its promise is watched
    read = {
        name: {key for key in settings(name) if key.startswith("serve")}
        for name in PIPELINE["stages"]
    }
    readers = {name for name, keys in read.items() if keys}
    assert all(read[name] == place for name in readers)
    assert readers == {"rivals", "choose0", "evaluate", "choose", "report"}


def test_another_promise_makes_only_the_choice_stale() -> None:
    promise = {"evaluate.epsilon", "evaluate.delta"}
    listed = {name: settings(name) for name in PIPELINE["stages"]}
    readers = {name for name in listed if listed[name] & {"evaluate", *promise}}
    assert readers == {"choose0", "choose"}
    assert promise < listed["choose"] == listed["choose0"]
    others = {f"evaluate.{key}" for key in EvaluateParams.model_fields} - promise
    assert others < listed["rivals"]


@every_stage
def test_a_stage_that_makes_prompts_depends_on_their_settings(name: str) -> None:
    code = (STAGE_FOLDER / f"{command(name)}.py").read_text()
    makes = "citer.stages.folders" in code or "citer.stages.asked" in code
    of_prompts = {"pair.prompt", "pair.chat", "pair.stop"}
    assert of_prompts & settings(name) == (of_prompts if makes else set())


def test_dvc_sees_the_tables_of_a_server_but_not_what_it_is_writing() -> None:
    log = "data/own/traffic"
    hidden = [f"{log}/.20260101T000000-ab.jsonl", f"{log}/.20260101T000000-ab.parquet.aside"]
    shown = dvc("check-ignore", *hidden, f"{log}/20260101T000000-ab.parquet")
    assert shown.splitlines() == hidden
