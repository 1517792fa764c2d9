"""A real DVC repository with stages of a second: no mock of git, DVC or Prefect."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prefect.settings import PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW, temporary_settings
from prefect.testing.utilities import prefect_test_harness
from ruamel.yaml import YAML

Pipeline = Callable[[dict[str, Any]], None]


@pytest.fixture(scope="session")
def empty_repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    for command in (["git", "init", "-q"], [sys.executable, "-m", "dvc", "init", "-q"]):
        subprocess.run(command, cwd=folder, check=True)
    (folder / ".dvc/config").write_text("[core]\n    analytics = false\n")
    return folder


@pytest.fixture
def pipeline(empty_repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pipeline:
    """Enter a fresh DVC repository; call it with the `stages` of its dvc.yaml."""
    folder = tmp_path / "project"
    shutil.copytree(empty_repository, folder)
    monkeypatch.chdir(folder)
    return lambda stages: YAML().dump({"stages": stages}, Path("dvc.yaml"))


@pytest.fixture(scope="session")
def clone(empty_repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that nothing was trained in yet, its MLflow store made but empty."""
    from flows.store import make_tables
    from tests.flows.project import make_project

    folder = tmp_path_factory.mktemp("clone") / "project"
    shutil.copytree(empty_repository, folder)
    make_project(folder)
    make_tables(folder / "mlruns/mlflow.db")
    return folder


@pytest.fixture
def project(clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Enter a project of one's own."""
    folder = tmp_path / "project"
    shutil.copytree(clone, folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")
    return folder


@pytest.fixture(scope="session")
def prefect() -> Iterator[None]:
    quiet = {PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW: "ignore"}
    with temporary_settings(quiet), prefect_test_harness(server_startup_timeout=120):
        yield
