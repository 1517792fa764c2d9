import os
import tempfile
from pathlib import Path

import pytest

from flows.scratch import NAME, scratch


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_it_is_empty_and_goes_with_its_run(home: Path) -> None:
    (home / f"{NAME}{os.getpid()}" / "of another process with our pid").mkdir(parents=True)
    with scratch() as folder:
        assert [*folder.iterdir()] == []
        (folder / "left").mkdir()
    assert [*home.iterdir()] == []


def test_those_of_killed_runs_go_and_those_of_living_ones_stay(home: Path) -> None:
    killed, living, other = (home / name for name in (f"{NAME}{2**22 + 1}", f"{NAME}1", "other"))
    for folder in (killed / "left", living, other):
        folder.mkdir(parents=True)
    with scratch():
        assert not killed.exists()
    assert {*home.iterdir()} == {living, other}
