import os
import tempfile
from pathlib import Path

import pytest

from flows.process_tree import PLACE, tempdir


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_the_folder_is_empty_and_is_removed_with_its_run(home: Path) -> None:
    with tempdir() as folder:
        assert folder.parent == home
        assert [*folder.iterdir()] == []
        (folder / "left").mkdir()
    assert [*home.iterdir()] == []


def test_folders_of_killed_runs_are_removed_and_folders_of_living_runs_stay(home: Path) -> None:
    """A pid of another host or container says nothing here."""
    unknown = 2**22 + 1
    killed, same_pid, living = (
        home / f"citer-run-{PLACE}-{pid}-x" for pid in (unknown, os.getpid(), os.getppid())
    )
    elsewhere, other = home / f"citer-run-01234567-{unknown}-x", home / "citer-run-other"
    for folder in (killed / "left", same_pid, living, elsewhere, other):
        folder.mkdir(parents=True)
    with tempdir() as ours:
        assert {*home.iterdir()} == {living, elsewhere, other, ours}
