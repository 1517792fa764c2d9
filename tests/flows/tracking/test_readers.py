"""Commands that read the registry neither make one nor write to it."""

import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from citer.errors import InputError
from flows.dvc_commands import locked
from flows.repro import LOCK
from flows.tracking.compare import compare
from flows.tracking.registry import promote, resolved
from flows.tracking.restore import restore
from flows.tracking.store import make_tables
from tests.flows.servers import until
from tests.flows.tracking.registered import CHAMPION, fetch

READERS: dict[str, Callable[[], object]] = {
    "compare": compare,
    "serve": lambda: resolved(CHAMPION),
    "generate": lambda: fetch(CHAMPION),
}
OTHERS: dict[str, Callable[[], object]] = {
    "promote": lambda: promote(1),
    "restore": lambda: restore(1),
}
LOST: dict[str, Callable[[Path], None]] = {
    "folder": shutil.rmtree,
    "database": lambda home: (home / "mlflow.db").unlink(),
    "tables": lambda home: (home / "mlflow.db").write_bytes(b""),
}


def state() -> dict[Path, tuple[int, int]]:
    """Return the time and size of each file of the project, and the time of each folder."""
    found = {file: file.stat() for file in (Path(), *Path().rglob("*"))}
    return {file: (stat.st_mtime_ns, stat.st_size) for file, stat in found.items()}


@pytest.mark.parametrize("lost", LOST)
def test_where_there_is_no_registry_only_a_run_makes_one(project: Path, lost: str) -> None:
    LOST[lost](Path("mlruns"))
    before = state()
    for command in (READERS | OTHERS).values():
        with pytest.raises(InputError, match=r"mlflow.db: no registry here; `citer run` makes one"):
            command()
    assert state() == before


def test_a_named_database_that_is_missing_is_not_made(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for uri in ("sqlite:///other.db", f"sqlite:///{project}/other.db?timeout=1"):
        monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
        with pytest.raises(InputError, match=r"other.db.*: no registry here"):
            compare()
    assert not Path("other.db").exists()


def test_readers_write_nothing_and_find_a_registry_that_was_away(registered: Path) -> None:
    """So they work in a folder that may only be read, and `mv` finds its place free."""
    before = state()
    for reader in READERS.values():
        reader()
    assert state() == before
    os.rename("mlruns", "saved")
    for reader in READERS.values():
        with pytest.raises(InputError, match="no registry here"):
            reader()
    shutil.move("saved", "mlruns")
    fetch(CHAMPION)


def test_an_empty_database_of_a_server_gets_no_tables(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here an SQLite file stands for it, whose tables are made for the writer."""
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///other.db")
    Path("other.db").touch()
    with pytest.raises(InputError, match="no registry here"):
        compare()
    assert not Path("other.db").stat().st_size
    make_tables(Path("fresh.db"))
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "sqlite:///fresh.db")
    with pytest.raises(InputError, match=r"no registry here; .* \(no experiment 'citer'\)"):
        compare()


def test_a_restore_waits_for_a_run_of_the_same_folder(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A stage that runs would record the restored inputs as its own."""
    made = SimpleNamespace(data=SimpleNamespace(tags={}))
    for name in ("open_store", "find_version", "run_of"):
        monkeypatch.setattr(f"flows.tracking.restore.{name}", lambda *_: Mock())
    monkeypatch.setattr("flows.tracking.restore.run_of", lambda _: made)
    with ThreadPoolExecutor() as pool:
        with locked(LOCK, "nobody", print):
            waiting = pool.submit(restore, 1)
            until(lambda: "waiting for another run in this" in capsys.readouterr().out, 30)
            assert not waiting.done()
        with pytest.raises(KeyError, match="parentRunId"):
            waiting.result()
