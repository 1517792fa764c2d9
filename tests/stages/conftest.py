"""Fixtures: a project folder with a taught pair and its problems. Helpers: kill a stage in it."""

import os
import shutil
import signal
import subprocess
import sys
from contextlib import chdir
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from citer.config.params import DecodeParams, PairParams, Params, ScoreParams, load_params
from citer.data.problems import write_problems
from citer.data.tasks.grading import grade
from citer.decoding.engine import Engine
from citer.decoding.policy import LLM_ALONE
from citer.evaluation.sweep import request
from citer.models.bundle import write_bundle
from citer.models.folder import PairFolder
from citer.models.pair import Pair, load_pair
from citer.models.router import Router
from citer.stages import (
    choose,
    evaluate,
    label,
    paths,
    report,
    rivals,
    router0,
    score_llm,
    score_slm,
    transcribe,
)
from citer.storage.schema import HOLDOUT
from citer.storage.tables import write_json, write_table
from tests.heads import random_head
from tests.stages.asked import LIMIT, Own
from tests.stages.sections import with_section
from tests.taught import make_taught_pair, problems
from tests.tiny import MATH, MC, make_tiny_pair

ROOT = Path(__file__).parents[2]
COUNT = 12
CHUNK = 5  # problems labelled at a time, or scored
LENIENT = {"epsilon": 0.99, "delta": 0.2}
KILLED = """
import os, signal
from pathlib import Path
from citer.config.params import Params
from citer.labelling import labeller, scoring
from citer.stages import {stage}
import {module} as module

def and_die(function):
    def once(*args):
        function(*args)
        os.kill(os.getpid(), signal.SIGKILL)
    return once

labeller.CHUNK = scoring.SHARD = {chunk}
module.{function} = and_die(module.{function})
{stage}.run(Params.model_validate_json(Path("params.json").read_text()){iteration})
"""


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template")
    taught = [replace(problem, split="preference") for problem in problems(COUNT)]
    pair = make_taught_pair(folder / "data/pair", taught)
    shutil.copytree(pair.slm, folder / paths.SLM)
    write_problems(folder / paths.referenced("preference"), taught, {})
    return folder


@pytest.fixture(scope="session")
def scored_template(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, with both halves of the token table, and router 0."""
    folder = tmp_path_factory.mktemp("scored")
    shutil.copytree(template, folder, dirs_exist_ok=True)
    with chdir(folder), pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr("citer.labelling.scoring.SHARD", CHUNK)
        score_all(_params())
    return folder


def score_all(params: Params) -> None:
    """Score the references with both models, and make router 0."""
    for stage in (score_llm, score_slm, router0):
        stage.run(params)


def label_all(params: Params) -> None:
    """The same, and label the tokens."""
    score_all(params)
    label.run(params, 1)


@pytest.fixture
def project(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Params:
    """Enter a project whose problems are not yet scored."""
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("citer.labelling.labeller.CHUNK", CHUNK)
    monkeypatch.setattr("citer.labelling.scoring.SHARD", CHUNK)
    return _params()


def _params() -> Params:
    shipped = load_params(ROOT / "citer/config/params.yaml")
    limits = DecodeParams(slots=8, max_new_tokens=20)
    sizes = {"decode": limits, "score": ScoreParams(batch_tokens=600)}
    params = with_section(shipped.model_copy(update=sizes), "pair", device="cpu")
    return with_section(params, "train", batch_size=16)


@pytest.fixture
def scored(project: Params, scored_template: Path) -> Params:
    """Enter a project with both halves of the token table, and router 0."""
    shutil.copytree(scored_template, Path.cwd(), dirs_exist_ok=True)
    return project


@pytest.fixture(scope="session")
def taught_pair(template: Path) -> Pair:
    slm, llm = (template / "data/pair" / name for name in ("slm", "llm"))
    settings = PairParams(slm=str(slm), llm=str(llm), device="cpu", dtype="float32")
    return load_pair(PairFolder(slm, llm), settings)


@pytest.fixture(scope="session")
def own(taught_pair: Pair) -> dict[str, Own]:
    """By question. Some are right and some are wrong."""
    engine, answers = Engine(taught_pair, 1, LIMIT), {}
    for problem in problems(12):
        (answer,) = engine.decode([request(problem, taught_pair)], LLM_ALONE)
        assert not answer.truncated
        text = taught_pair.text(answer.token_ids)
        answers[problem.question] = Own(text, grade(problem, text), len(answer.token_ids))
    assert {each.right for each in answers.values()} == {True, False}
    return answers


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def run_killed(params: Params, stage: str, *iteration: int, module: str, function: str) -> None:
    """Run a stage in a process that kills itself by SIGKILL after a function's first call."""
    Path("params.json").write_text(params.model_dump_json(by_alias=True))
    script = KILLED.format(
        stage=stage,
        module=module,
        function=function,
        chunk=CHUNK,
        iteration="".join(f", {number}" for number in iteration),
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    killed = subprocess.run([sys.executable, "-c", script], env=environment, check=False)
    assert killed.returncode == -signal.SIGKILL


@pytest.fixture
def params(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Params:
    """Enter a project with a finetuned SLM, problems and two routers."""
    monkeypatch.chdir(tmp_path)
    return make_project()


@pytest.fixture(scope="session")
def reported_template(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Params]:
    folder = tmp_path_factory.mktemp("reported")
    with chdir(folder):
        params = make_project()
        run_all(params)
    return folder, params


@pytest.fixture
def reported(
    reported_template: tuple[Path, Params], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Params:
    """Enter the same project after all stages of `run_all`."""
    folder, params = reported_template
    monkeypatch.chdir(shutil.copytree(folder, tmp_path, dirs_exist_ok=True))
    return params


def make_project() -> Params:
    """Make the project of `params` in the current folder."""
    shipped = load_params(ROOT / "citer/config/params.yaml")
    slm, llm = make_tiny_pair(Path("models"))
    paths.SLM.parent.mkdir(parents=True)
    slm.rename(paths.SLM)
    params = with_section(
        shipped,
        "evaluate",
        llm_fractions=(0.0, 0.1, 0.4, 1.0),
        risks=(0.2, 0.6),
        audits=(0.1, 1.0),
        gammas=(2, 4),
        bounds=("random",),  # no tokens are scored
        llm_floor=0.0,  # the tiny LLM is never right
    )
    params = with_section(params, "pair", llm=llm.as_posix(), device="cpu")
    params = with_section(params, "decode", slots=3, max_new_tokens=12)
    for split in ("preference", "validation", "test"):
        rows = [
            replace(problem, problem_id=f"{split}-{problem.task}-{n}", split=split)
            for n in range(3)
            for problem in (MATH, MC)
        ]
        rows = [replace(p, question=f"{p.question} {n}") for n, p in enumerate(rows)]
        write_problems(paths.referenced(split), rows, {})
    write_routers(params)
    return params


@pytest.fixture
def taught(params: Params) -> Params:
    """Enter the same project with an LLM that is right on some questions, and lenient promises."""
    return with_taught_llm(params, 8, **LENIENT)


@pytest.fixture(scope="session")
def answered_template(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Params]:
    folder = tmp_path_factory.mktemp("answered")
    with chdir(folder):
        params = with_taught_llm(make_project(), 8, **LENIENT)
        rivals.run(params)
        evaluate.run(params, 1)
    return folder, params


@pytest.fixture
def answered(
    answered_template: tuple[Path, Params], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Params:
    """Enter the project of `taught` after `rivals`, and `evaluate` of the first iteration."""
    folder, params = answered_template
    monkeypatch.chdir(shutil.copytree(folder, tmp_path, dirs_exist_ok=True))
    return params


def with_taught_llm(params: Params, count: int, **evaluate: float) -> Params:
    """Put a pair in the project whose LLM was taught `count` questions, and ask it these.

    Its routers are new, too.
    """
    questions = problems(count)
    pair = make_taught_pair(Path("taught"), questions)
    shutil.rmtree(paths.SLM)
    pair.slm.rename(paths.SLM)
    for split in ("validation", "test"):
        rows = [replace(p, problem_id=f"{split}-{p.problem_id}", split=split) for p in questions]
        write_problems(paths.referenced(split), rows, {})
    taught = with_section(params, "pair", llm=pair.llm.as_posix())
    taught = with_section(taught, "evaluate", **evaluate)
    taught = with_section(taught, "decode", max_new_tokens=40)
    write_routers(taught)
    return taught


def write_routers(params: Params) -> None:
    """Write what `router0` and two iterations of `train` would: routers that share two heads."""
    pair = load_pair(PairFolder(paths.SLM, Path(params.pair.llm)), params.pair)
    size, stamp = pair.slm.hidden_size, pair.identity
    common = {"agree": random_head(size, 10), "co_llm": random_head(size, 11)}
    bundles = {paths.COMMON: common}
    for iteration in (1, 2):
        bundles[paths.router(iteration)] = common | {"stand": random_head(size, iteration)}
    for folder, heads in bundles.items():
        write_bundle(folder, Router(heads), stamp)
        write_json(folder / "metrics.json", {"rows": 7})
    own = {"problem_id": ["one"], "position": [0], "case": ["contested"], "label": [1]}
    for iteration in (1, 2):
        file = paths.router(iteration) / paths.HOLDOUT
        write_table(file, pa.table(own | {"score": [0.5]}, HOLDOUT), HOLDOUT, {})


def run_router(params: Params, iteration: int) -> None:
    """Write the report of a router."""
    evaluate.run(params, iteration)
    choose.run(params, iteration)


def run_all(params: Params) -> dict[str, bytes]:
    rivals.run(params)
    for iteration in (1, 2):
        run_router(params, iteration)
        transcribe.run(params, iteration)
    report.run(params)
    written = [*paths.RIVALS.parent.rglob("*"), *paths.SUMMARY.rglob("*")]
    return {path.as_posix(): path.read_bytes() for path in written if path.is_file()}
