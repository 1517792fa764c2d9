"""A light installation: `citer` without the packages of the extra `pipeline`."""

import ast
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from citer.cli.extra import EXTRAS
from citer.cli.main import COMMANDS
from citer.cli.stages import LIGHT
from citer.config.params import load_params
from citer.models.bundle import write_bundle
from citer.models.folder import PairFolder
from citer.models.pair import load_pair
from citer.pairs.profile import BOUND, COLUMNS, Agreement
from citer.rule import Rule
from citer.stages import paths
from citer.storage.code import imported
from citer.storage.tables import write_json
from tests.heads import random_router
from tests.tiny import make_tiny_pair

ROOT = Path(__file__).parents[1]
STAGES = Path("citer/stages")
SERVER = Path("citer/serving/server")  # uses the packages of the extra `serve`
OF_RAY = {Path("citer/executors/actors.py")}  # `executor_for` has checked for the extra `ray`
DISTRIBUTIONS = packages_distributions()  # by imported name

# Imports and versions of the extra's packages fail, as if they were not installed.
PROGRAM = """
import json, sys
from importlib.machinery import PathFinder

MODULES, PACKAGES = json.loads(sys.argv[1])

class Light(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name.partition(".")[0] in MODULES else super().find_spec(name, path, target)

    @classmethod
    def find_distributions(cls, context):
        return [] if context.name in PACKAGES else super().find_distributions(context)

sys.meta_path[sys.meta_path.index(PathFinder)] = Light
from citer.cli.main import call
for arguments in json.loads(sys.argv[2]):
    print(call(arguments), flush=True)
"""


def light(*commands: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run commands in one process without the extra. stdout ends with their exit statuses."""
    blocked = json.dumps([EXTRAS["pipeline"], sorted(declared("pipeline"))])
    command = [sys.executable, "-c", PROGRAM, blocked, json.dumps(commands)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True)


def declared(extra: str | None = None) -> set[str]:
    """Return the packages that pyproject.toml names, without version bounds."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = project["optional-dependencies"][extra] if extra else project["dependencies"]
    return {re.split(r"[<>=]", entry)[0] for entry in listed}


def imports(files: Iterable[Path]) -> set[str]:
    """Return the third-party packages that files import, by their top-level names."""
    names_imported = set()
    for file in files:
        for node in ast.walk(ast.parse((ROOT / file).read_text())):
            match node:
                case ast.Import(names=names):
                    names_imported |= {alias.name.partition(".")[0] for alias in names}
                case ast.ImportFrom(module=str(module)):
                    names_imported.add(module.partition(".")[0])
    return names_imported - sys.stdlib_module_names - {"citer", "flows", "benchmarks"}


def distributed(package: str) -> set[str]:
    """Return the names, as pyproject.toml writes them, of what installs a package."""
    return {name.replace("_", "-") for name in DISTRIBUTIONS[package]}


def python_files(start: Path) -> set[Path]:
    return {file for file in imported(start) if file.suffix == ".py"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project folder with params.yaml, a tiny pair and a router's folder with a rule."""
    slm, llm = make_tiny_pair(tmp_path / "data/pair")
    shutil.copytree(slm, tmp_path / paths.SLM)
    text = (ROOT / "citer/config/params.yaml").read_text()
    text = text.replace("max_new_tokens: 128", "max_new_tokens: 6")
    (tmp_path / "params.yaml").write_text(text)
    pair = load_pair(PairFolder(slm, llm), load_params().pair.model_copy(update={"device": "cpu"}))
    card = pair.identity | {"threshold": {"rule": asdict(Rule("risk", 0.5, audit=0.1))}}
    write_bundle(tmp_path / "router", random_router(pair.slm.hidden_size), card)
    return tmp_path


def test_help_lists_every_command(tmp_path: Path) -> None:
    shown = light(["--help"], cwd=tmp_path).stdout.split()
    assert {command.__name__ for commands in COMMANDS.values() for command in commands} <= {*shown}
    assert shown[-1] == "0"


def test_a_pair_is_profiled_and_answers_with_a_routers_folder(project: Path) -> None:
    (project / "q.jsonl").write_text(json.dumps({"problem": "What is 3 + 4?", "answer": "7"}))
    forwards = [[0.5, 0.5]] * len(COLUMNS)
    measured = Agreement(
        0.9, 100, dict.fromkeys(("score 1", "every 1", "risk 0.5", BOUND), forwards)
    )
    write_json(project / paths.AGREEMENT, asdict(measured))
    write_json(project / paths.SUMMARY / "headline.json", {"llm_fraction": 0.05})
    files = ["--input", "q.jsonl", "--output", "out.jsonl"]
    done = light(["profile"], ["generate", "--router", "router", *files], cwd=project)
    assert done.stdout.splitlines().count("0") == 2, done.stderr
    assert all(text in done.stdout for text in ("pays up to", "90.0% of 100", "deployed"))
    [line] = (project / "out.jsonl").read_text().splitlines()
    assert 0 < json.loads(line)["tokens"] <= 6


REFUSED = [
    *(["run"], ["compare"], ["promote", "1"], ["restore", "1"], ["schedule", "--cron", "@daily"]),
    ["erase", "--user", "a", "--log", "l"],
    *(["prepare"], ["probe"], ["finetune"], ["router0"], ["rivals"], ["report"]),
    *(["train", "1"], ["evaluate", "1"], ["choose", "1"]),
    ["certify", "--url", "http://127.0.0.1:1", "--rule", "audit 1"],
]


def test_a_command_that_needs_the_extra_is_refused_in_one_line(tmp_path: Path) -> None:
    shutil.copy(ROOT / "citer/config/params.yaml", tmp_path)
    uri = ["generate", "--router", "models:/r@champion", "--input", "q", "--output", "o"]
    done = light(*REFUSED, uri, cwd=tmp_path)
    names = [*(f"citer {arguments[0]}" for arguments in REFUSED), "--router models:/…"]
    needs = "needs the extra \"pipeline\", in a clone of citer: pip install '.[pipeline]'"
    assert done.stderr.splitlines() == [f"citer: {name} {needs}" for name in names]
    assert done.stdout.split() == ["2"] * len(names)
    assert [file.name for file in tmp_path.iterdir()] == ["params.yaml"]


def test_the_server_needs_an_extra_of_its_own(project: Path) -> None:
    done = light(["serve", "--router", "router"], cwd=project)
    needs = "needs the extra \"serve\", in a clone of citer: pip install '.[serve]'"
    assert done.stderr.splitlines() == [f"citer: citer serve {needs}"]
    assert done.stdout.split() == ["2"]


def test_exactly_the_light_stages_import_nothing_of_the_extra() -> None:
    names = [command.__name__ for command in COMMANDS["Stages (dvc.yaml runs them)"]]
    light = {
        name
        for name in names
        if not imports(python_files(STAGES / f"{name}.py")) & {*EXTRAS["pipeline"]}
    }
    assert light == LIGHT


def test_the_dependencies_are_the_imports_of_the_commands_that_run_light() -> None:
    """`citer.cli.main` imports every command except the stages, which are imported by name."""
    starts = [Path("citer/cli/main.py"), *(STAGES / f"{name}.py" for name in LIGHT)]
    files = {file for start in starts for file in python_files(start)}
    of_server = {file for file in files if file.is_relative_to(SERVER)}
    assert imports(of_server) & {*EXTRAS["serve"]} == {*EXTRAS["serve"]}
    assert files > OF_RAY
    assert imports(OF_RAY) - imports(files - OF_RAY) == declared("ray") == {"ray"}
    used = imports(files - of_server - OF_RAY)
    assert {"torch", "typer"} <= used
    assert used & {*EXTRAS["pipeline"]} == set()
    assert declared() == {name for each in used for name in DISTRIBUTIONS[each]} & declared()
    assert [each for each in used if not {*DISTRIBUTIONS[each]} & declared()] == []


@pytest.mark.parametrize(("extra", "names"), EXTRAS.items())
def test_the_check_for_an_extra_knows_its_packages(extra: str, names: Sequence[str]) -> None:
    packages = declared(extra)
    assert len(names) == len(packages)
    assert all(distributed(name) & packages for name in names)


def test_reading_params_imports_no_slow_library():
    slow = {"torch", "transformers", "math_verify", "pyarrow"}
    code = f"import sys, citer.config.params; print({slow} & sys.modules.keys())"
    command = [sys.executable, "-c", code]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert printed == "set()\n"
