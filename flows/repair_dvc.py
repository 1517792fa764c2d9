"""Repair `.dvc` and `dvc.lock` after DVC was killed. Without this, every later DVC call fails.

DVC rewrites `dvc.lock` and `rwlock` in place, so a kill can truncate both. `rwlock` is DVC's table
of the paths that running processes read and write. After a kill it still names the killed process.
A kill can also leave an empty folder in the run cache. Only the project's own cache, `.dvc/cache`,
is repaired.
"""

import json
import re
import shutil
import time
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import psutil
from dvc.rwlock import RWLOCK_FILE, RWLOCK_LOCK
from dvc.rwlock import SCHEMA as RWLOCK_SCHEMA
from dvc.schema import COMPILED_LOCKFILE_SCHEMA as LOCK_SCHEMA
from ruamel.yaml import YAML, YAMLError
from voluptuous import Invalid

from citer.storage.tables import replacing
from flows.dvc_commands import DVC_LOCK, LOCK, TMP, Log, locked

RWLOCK, GUARD = TMP / RWLOCK_FILE, TMP / RWLOCK_LOCK
KEPT, TORN = TMP / "dvc.lock.kept", TMP / "dvc.lock.torn"
CONFLICT = b"<<<<<<<"  # a git merge conflict
RUNS = Path(".dvc/cache/runs")
ENTRY = re.compile(r"[0-9a-f]{64}")
STAGE = "multiprocessing.forkserver"  # the command of a process in which a stage runs

Info = dict[str, Any]  # a process: its `pid`, and its command line as `cmd`


def repair(log: Log) -> None:
    """Repair DVC's files, while this process runs no stage. Waits while another DVC works on them.

    DVC writes to the repaired files only under the locks that are taken here, and takes none of
    them while a stage's command runs.
    """
    if busy := _repair(log):
        log(f"waiting for DVC, process {busy[0]['pid']}: {busy[0]['cmd']}")
        while _repair(log):
            time.sleep(1)


def repair_lock(log: Log) -> None:
    """Back up `dvc.lock` if it is whole. Replace it by the backup if it is truncated."""
    with locked(DVC_LOCK, "DVC", log):
        _repair_lock(log)


def _repair(log: Log) -> list[Info]:
    """Repair the files, unless other DVC processes work on them; return these processes."""
    with locked(DVC_LOCK, "DVC", log), locked(GUARD, "DVC", log):
        # A child of this process, such as the fork server, only has the pid of one that ended.
        ours = {process.pid for process in psutil.Process().children(recursive=True)}
        if busy := [info for info in _noted() if info["pid"] not in ours and _at_work(info)]:
            return busy
        RWLOCK.unlink(missing_ok=True)
        _clear_run_cache()
        _repair_lock(log)
        return []


def _noted() -> list[Info]:
    """Return the processes in DVC's table: none if it is missing or damaged."""
    with suppress(FileNotFoundError, ValueError, Invalid):
        table = RWLOCK_SCHEMA(json.loads(RWLOCK.read_text(encoding="utf-8")))
        return [*table["write"].values(), *chain.from_iterable(table["read"].values())]
    return []


def _at_work(info: Info) -> bool:
    """Return whether a process of the table still runs. Another process may have its pid now."""
    try:
        command = psutil.Process(info["pid"]).cmdline()
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True
    is_dvc = any(Path(part).name == "dvc" or STAGE in part for part in command)
    return is_dvc or info["cmd"] == " ".join(command[1:])  # a script that imports DVC


def _clear_run_cache() -> None:
    """Remove half-written entries and empty folders: DVC reads any file there as an entry."""
    for folder in filter(Path.is_dir, RUNS.glob("*/*")):
        for file in folder.iterdir():
            if not ENTRY.fullmatch(file.name):
                file.unlink()
        with suppress(OSError):  # not empty
            folder.rmdir()


def _repair_lock(log: Log) -> None:
    if not LOCK.exists():
        KEPT.unlink(missing_ok=True)
    elif KEPT.exists() and LOCK.read_bytes() == KEPT.read_bytes():
        return
    elif whole(LOCK):
        _copy(LOCK, KEPT)
    elif CONFLICT not in LOCK.read_bytes():  # DVC asks the user to resolve it
        remedy = "restored from a backup" if KEPT.exists() else "removed, since no backup exists"
        log(f"{LOCK}: truncated by a kill; {remedy}; the damaged file is now {TORN}")
        _copy(LOCK, TORN)
        if KEPT.exists():
            _copy(KEPT, LOCK)
        else:
            LOCK.unlink()


def whole(file: Path) -> bool:
    """Return whether a `dvc.lock` is complete and valid."""
    try:
        content = file.read_text(encoding="utf-8")
        LOCK_SCHEMA(YAML(typ="safe").load(content))
    except (YAMLError, UnicodeDecodeError, Invalid):
        return False
    return content.endswith("\n")


def _copy(source: Path, target: Path) -> None:
    with replacing(target) as aside:
        shutil.copyfile(source, aside)
