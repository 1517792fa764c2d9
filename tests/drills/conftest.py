"""A tiny project in which every stage has run, and a clone whose stages write fixed files.

Tests record what they drilled as properties. `tests/conftest.py` counts them at the end of a run.
"""

import shutil
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import pytest

from tests.drills.project import Settings, make_project
from tests.drills.stages import Undisturbed
from tests.flows.project import finetune, make_clone

# The LLM writes references, too. Answers are computed in several parts.
SETTINGS: Settings = {"references": {"source": "both"}, "decode": {"slots": 1}}


@pytest.fixture(scope="session", autouse=True)
def small_shards() -> Iterator[None]:
    """Score few questions at a time, so that there are several files of token scores."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("citer.labelling.scoring.SHARD", 4)
        yield


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template")
    with chdir(folder):
        make_project(SETTINGS)
    return folder


@pytest.fixture(scope="session")
def stages(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    return Undisturbed(template, tmp_path_factory.mktemp("undisturbed"))


@pytest.fixture(scope="session")
def finetuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finetuned") / "project"
    make_clone(folder)
    finetune(folder)
    return folder


@pytest.fixture
def clone(finetuned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Enter a clone with a finetuned SLM, in which `tests.flows.project.retrain` works."""
    folder = tmp_path / "project"
    shutil.copytree(finetuned, folder)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")
    return folder
