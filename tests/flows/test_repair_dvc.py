"""Files as a kill leaves them, written by hand. Real DVC must work after the repair."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from datetime import timedelta
from pathlib import Path
from threading import Thread
from typing import Any

import psutil
import pytest
from dvc.lock import LockError
from dvc.repo import Repo
from ruamel.yaml import YAML

from flows.dvc_commands import DVC_LOCK, LOCK, dvc, locked
from flows.repair_dvc import GUARD, RUNS, RWLOCK, repair
from flows.repro import one_run, plan, reproduce
from tests.flows.servers import until

FIRST = {"cmd": "cp a b", "deps": ["a"], "outs": ["b"]}
SECOND = {"cmd": "cp b c", "deps": ["b"], "outs": ["c"]}
# Starts as DVC does, adds itself to DVC's table, and runs until its input ends.
SCRIPT = """
import json, os, sys
info = {"pid": os.getpid(), "cmd": " ".join(sys.argv)}
json.dump({"write": {os.path.abspath("b"): info}, "read": {}}, open(".dvc/tmp/rwlock", "w"))
print("noted", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def whole(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose two stages have run."""
    folder = tmp_path_factory.mktemp("whole") / "project"
    shutil.copytree(clone, folder)
    YAML().dump({"stages": {"first": FIRST, "second": SECOND}}, folder / "dvc.yaml")
    with chdir(folder):
        Path("a").write_text("one")
        assert run("first")
        assert run("second")
    return folder


@pytest.fixture
def ran(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Enter a copy of that project; return its `dvc.lock`."""
    shutil.copytree(whole, tmp_path / "project")
    monkeypatch.chdir(tmp_path / "project")
    return LOCK.read_text()


def run(name: str) -> bool:
    return reproduce(name, timedelta(minutes=1), print)


def note(pid: int, command: str) -> None:
    """Return DVC's table after process `pid` has begun to write `b`."""
    table = {"write": {str(Path("b").absolute()): {"pid": pid, "cmd": command}}, "read": {}}
    RWLOCK.write_text(json.dumps(table))


def table() -> Any:
    return json.loads(RWLOCK.read_text())


@pytest.mark.parametrize("torn", ["", '{"write": {"/a', '{"write": {"a": {"pid": 1}}}'])
def test_a_table_that_cannot_be_read_is_dropped(ran: str, torn: str) -> None:
    RWLOCK.write_text(torn)
    Path("a").write_text("two")
    assert run("first")
    assert not table().get("write")


def test_entries_of_dead_processes_and_of_other_programs_are_dropped(ran: str) -> None:
    Path("a").write_text("two")
    note(psutil.Process().ppid() or 1, f"{sys.prefix}/bin/dvc repro --single-item first")
    assert run("first")
    note(2**22 + 1, "dvc repro")
    assert not run("first")
    assert not table().get("write")


@contextmanager
def like_dvc(*launcher: str) -> Iterator[subprocess.Popen[str]]:
    """Start a process that looks like DVC and has added itself to DVC's table."""
    script = Path("dvc")
    script.write_text(SCRIPT)
    command = [*launcher, sys.executable, script]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "noted\n"
        yield process


def test_the_dvc_of_another_run_is_waited_for_and_its_entry_stays(ran: str) -> None:
    messages: list[str] = []

    def log(line: str) -> None:
        messages.append(line)
        [(_, info)] = table()["write"].items()
        assert line == f"waiting for DVC, process {info['pid']}: dvc"
        other.communicate("")

    with like_dvc("setsid", "--fork") as other:  # it becomes an orphan, no child of this process
        repair(log)
    assert len(messages) == 1
    assert not RWLOCK.exists()


def test_a_process_of_this_run_that_has_the_pid_of_a_dead_one_is_not_waited_for(ran: str) -> None:
    messages: list[str] = []
    with like_dvc() as own:
        repair(messages.append)
        own.communicate("")
    assert messages == []
    assert not RWLOCK.exists()


def test_a_run_cache_folder_without_a_whole_entry_is_removed(ran: str) -> None:
    entries = list(RUNS.glob("*/*/*"))
    for entry in entries:
        entry.rename(entry.with_name(".xX-_x.tmp"))
    entries[0].with_name(".xX-_x.tmp").unlink()
    LOCK.unlink()  # otherwise DVC would not use its run cache
    assert run("first")
    assert run("second")
    assert LOCK.read_text() == ran
    assert sorted(RUNS.glob("*/*/*")) == sorted(entries)


def test_a_stage_writes_the_lock_aside_and_renames_it(ran: str) -> None:
    """So a kill leaves the old one or the new one, whole."""
    os.link(LOCK, "old")
    Path("a").write_text("two")
    assert run("first")
    assert Path("old").read_text() == ran
    assert LOCK.read_text() != ran
    with one_run(print):
        assert list(plan()) == ["first", "second"]


def test_nothing_is_logged_or_removed_if_nothing_is_broken(ran: str) -> None:
    stray = RUNS / "ab" / ".DS_Store"  # no folder of the run cache
    stray.parent.mkdir(parents=True, exist_ok=True)
    stray.write_text("")
    messages: list[str] = []
    repair(messages.append)
    assert messages == []
    assert LOCK.read_text() == ran
    assert {entry.parent.parent.parent for entry in RUNS.glob("*/*/*")} == {RUNS}
    assert stray.exists()
    shutil.rmtree(".dvc/tmp")
    repair(messages.append)
    assert messages == []
    assert dvc("status") == "Data and pipelines are up to date."


def test_dvc_takes_the_lock_that_is_taken_here(ran: str) -> None:
    with locked(DVC_LOCK, "nobody", print), pytest.raises(LockError):
        Repo().lock.lock()


@pytest.mark.parametrize("lock", [DVC_LOCK, GUARD])
def test_files_are_not_repaired_while_dvc_holds_a_lock(ran: str, lock: Path) -> None:
    RWLOCK.write_text("{}")
    said: list[str] = []
    with locked(lock, "nobody", print):
        repairing = Thread(target=repair, args=[said.append])
        repairing.start()
        until(lambda: said, 60)
        assert said == ["waiting for DVC"]
        assert RWLOCK.exists()
    repairing.join()
    assert not RWLOCK.exists()
