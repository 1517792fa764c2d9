"""Fixtures: small clones of this repository, with real git, DVC, MLflow and Prefect."""

import os
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from prefect.settings import PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW, temporary_settings
from prefect.testing.utilities import prefect_test_harness
from ruamel.yaml import YAML

from citer.config.params import load_params
from flows.tracking.store import make_tables, open_store
from tests.flows.project import commit, enter, finetune, make_clone, register_new

TEXTS = """
SELECT m.name, p.name FROM sqlite_master m, pragma_table_info(m.name) p
WHERE m.type = 'table' AND (p.name LIKE '%location' OR p.name IN ('artifact_uri', 'tag_value'))
"""
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
    enter(finetuned, folder, monkeypatch)
    return folder


@pytest.fixture(scope="session")
def first(finetuned: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of `finetuned` in which a retraining is registered."""
    folder = tmp_path_factory.mktemp("first") / "project"
    with pytest.MonkeyPatch.context() as patch:
        enter(finetuned, folder, patch)
        register_new(1)
    return folder


@pytest.fixture
def registered(first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Enter a copy of `first`. MLflow stores absolute paths, so those are changed."""
    folder = tmp_path / "project"
    enter(first, folder, monkeypatch)
    with closing(sqlite3.connect(folder / "mlruns/mlflow.db")) as store, store:
        for table, column in store.execute(TEXTS).fetchall():
            change = f"UPDATE {table} SET {column} = replace({column}, ?, ?)"
            store.execute(change, (str(first), str(folder)))
    open_store(load_params().register_.experiment)  # for clients without an address
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
