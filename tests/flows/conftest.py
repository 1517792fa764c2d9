"""The repository itself, small enough to run in moments: no mock of git, DVC, MLflow or Prefect."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prefect.settings import PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW, temporary_settings
from prefect.testing.utilities import prefect_test_harness
from ruamel.yaml import YAML

from flows.store import make_tables
from tests.flows.project import finetune, make_clone

Pipeline = Callable[[dict[str, Any]], None]


@pytest.fixture(scope="session")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clean clone that has never run, but for its pair and sizes, which are tiny."""
    folder = tmp_path_factory.mktemp("clone") / "project"
    make_clone(folder)
    return folder


@pytest.fixture
def pipeline(clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """Enter a clone; call it with the `stages` of its dvc.yaml."""
    folder = tmp_path / "project"
    shutil.copytree(clone, folder)
    monkeypatch.chdir(folder)
    return lambda stages: YAML().dump({"stages": stages}, Path("dvc.yaml"))


@pytest.fixture(scope="session")
def finetuned(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone that only has to label, its MLflow store made but empty."""
    folder = tmp_path_factory.mktemp("finetuned") / "project"
    shutil.copytree(clone, folder)
    finetune(folder)
    make_tables(folder / "mlruns/mlflow.db")
    return folder


@pytest.fixture
def project(finetuned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Enter a project of one's own."""
    folder = tmp_path / "project"
    shutil.copytree(finetuned, folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")
    return folder


@pytest.fixture(scope="session")
def prefect() -> Iterator[None]:
    quiet = {PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW: "ignore"}
    with temporary_settings(quiet), prefect_test_harness(server_startup_timeout=120):
        yield
