"""A tiny project in which every stage has run.

Tests record what they drilled as properties. `tests/conftest.py` counts them at the end of a run.
"""

from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path

import pytest

from tests.drills.project import Settings, make_project
from tests.drills.stages import Undisturbed
from tests.flows.conftest import clone, finetuned, project  # noqa: F401  fixtures

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
