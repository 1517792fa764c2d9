"""A tiny project in which every stage has run, which all drills of single commands copy."""

from contextlib import chdir
from pathlib import Path

import pytest

from tests.drills.project import Settings, make_project
from tests.drills.stages import Undisturbed

# The LLM writes references, too. Answers are computed in several parts.
SETTINGS: Settings = {"references": {"source": "both"}, "evaluate": {"slots": 1}}


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template")
    with chdir(folder):
        make_project(SETTINGS)
    return folder


@pytest.fixture(scope="session")
def stages(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    return Undisturbed(template, tmp_path_factory.mktemp("undisturbed"))
