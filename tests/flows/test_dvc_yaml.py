"""dvc.yaml against the code: one name for one step, and every dependency told."""

import ast
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from citer.cli import STAGES, app
from citer.config import Params, load_params
from flows.repro import stage_names
from flows.stages import stage_task
from tests.flows.imports import imported

PIPELINE: dict[str, Any] = YAML(typ="safe").load(Path("dvc.yaml"))
STAGE_FOLDER = Path("citer/stages")
WITHOUT_SECTION = {"router0", "rivals", "report"}
OUTSIDE_DVC = {"pair", "register"}  # what all stages share; a side effect, which no cache may hide

every_stage = pytest.mark.parametrize("name", PIPELINE["stages"])


def stage(name: str) -> dict[str, Any]:
    """A stage of dvc.yaml, one template for all iterations."""
    entry = PIPELINE["stages"][name]
    return entry.get("do", entry)


def code_deps(name: str) -> list[Path]:
    return [Path(path) for path in stage(name)["deps"] if path.startswith("citer")]


def data_deps(name: str) -> set[str]:
    return {path for path in stage(name)["deps"] if not path.startswith("citer")}


def covered(path: Path) -> set[Path]:
    return {path, *path.rglob("*")}


@every_stage
def test_a_stage_has_one_name_as_module_command_and_params_section(name: str) -> None:
    commands = [c for c in app.registered_commands if c.rich_help_panel == STAGES]
    assert name in {c.name or getattr(c.callback, "__name__", "") for c in commands}
    assert (STAGE_FOLDER / f"{name}.py").is_file()
    assert stage(name)["cmd"].split()[:2] == ["citer", name]
    assert (name in load_params().model_dump(by_alias=True)) == (name not in WITHOUT_SECTION)


def test_there_is_no_section_module_or_command_without_a_stage() -> None:
    names = set(PIPELINE["stages"])
    modules = {file.stem for file in STAGE_FOLDER.glob("*.py")} - {"__init__", "paths"}
    sections = {field.alias or key for key, field in Params.model_fields.items()} - OUTSIDE_DVC
    commands = [c for c in app.registered_commands if c.rich_help_panel == STAGES]
    assert modules == names
    assert sections == names - WITHOUT_SECTION
    assert len(commands) == len(names)


def test_dvc_knows_every_stage_of_every_iteration_and_each_is_a_task_of_its_name() -> None:
    iterations = PIPELINE["vars"][0]["iterations"]
    assert all(isinstance(key, str) for key in iterations)  # DVC drops integer keys in silence
    expected = {
        full
        for name, entry in PIPELINE["stages"].items()
        for full in ([f"{name}@{key}" for key in iterations] if "foreach" in entry else [name])
    }
    names = stage_names()
    assert set(names) == expected
    assert [stage_task(name).name for name in names] == names


def test_the_report_waits_for_every_iteration_and_is_of_these() -> None:
    iterations = PIPELINE["vars"][0]["iterations"]
    assert PIPELINE["stages"]["report"]["cmd"] == f"citer report {' '.join(iterations)}"
    assert data_deps("report") == {"data/reports/rivals"} | {
        f"data/reports/{key}" for key in iterations
    }


@every_stage
def test_a_stage_depends_on_all_the_code_that_it_imports_and_on_none_besides(name: str) -> None:
    needed = imported(STAGE_FOLDER / f"{name}.py")
    deps = code_deps(name)
    assert needed - set().union(*map(covered, deps)) == set()
    assert [dep for dep in deps if not covered(dep) & needed] == []


@every_stage
def test_a_stage_depends_on_the_sections_of_params_that_it_reads(name: str) -> None:
    code = ast.parse((STAGE_FOLDER / f"{name}.py").read_text())
    read = {
        node.attr
        for node in ast.walk(code)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "params"
    } & set(Params.model_fields)
    assert set(stage(name).get("params", [])) == read
