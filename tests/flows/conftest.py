"""Fixtures: small clones of this repository, with real git, DVC, MLflow and Prefect."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prefect.settings import PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW, temporary_settings
from prefect.testing.utilities import prefect_test_harness
from ruamel.yaml import YAML

from flows.tracking.store import make_tables
from tests.flows.project import commit, finetune, make_clone

Pipeline = Callable[[dict[str, Any]], None]


@pytest.fixture(scope="session")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clean clone that has never run, with a tiny pair and few questions."""
    folder = tmp_path_factory.mktemp("clone") / "project"
    make_clone(folder)
    return folder


@pytest.fixture
def pipeline(clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """Enter a clone where DVC finds `citer`; return a function that writes `stages` to dvc.yaml."""
    folder = tmp_path / "project"
    shutil.copytree(clone, folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    return lambda stages: YAML().dump({"stages": stages}, Path("dvc.yaml"))


@pytest.fixture(scope="session")
def finetuned(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone with a finetuned SLM, a pipeline of only `label`, and an empty MLflow store."""
    folder = tmp_path_factory.mktemp("finetuned") / "project"
    shutil.copytree(clone, folder)
    finetune(folder)
    make_tables(folder / "mlruns/mlflow.db")
    return folder


@pytest.fixture
def project(finetuned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Enter a copy of `finetuned`."""
    folder = tmp_path / "project"
    shutil.copytree(finetuned, folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")
    return folder


@pytest.fixture
def checkout(pipeline: Pipeline) -> Path:
    """A clone with everything committed, which is the current folder."""
    pipeline({})
    commit(Path())
    return Path.cwd()


@pytest.fixture(scope="session")
def prefect() -> Iterator[None]:
    quiet = {PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW: "ignore"}
    with temporary_settings(quiet), prefect_test_harness(server_startup_timeout=600):
        yield
