"""Repair `.dvc` after DVC was killed. Without this, every later DVC call fails.

DVC rewrites `rwlock` in place, its table of the paths that running processes read and write. A kill
can truncate it, and it still names the killed process. A kill can also leave an empty folder in the
run cache. Only the project's own cache, `.dvc/cache`, is repaired.
"""

import json
import re
import time
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import psutil
from dvc.rwlock import RWLOCK_FILE, RWLOCK_LOCK
from dvc.rwlock import SCHEMA as RWLOCK_SCHEMA
from voluptuous import Invalid

from flows.dvc_commands import DVC_LOCK, TMP, Log, locked

RWLOCK, GUARD = TMP / RWLOCK_FILE, TMP / RWLOCK_LOCK
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


def _repair(log: Log) -> list[Info]:
    """Repair the files, unless other DVC processes work on them; return these processes."""
    with locked(DVC_LOCK, "DVC", log), locked(GUARD, "DVC", log):
        # A child of this process, such as the fork server, only has the pid of one that ended.
        ours = {process.pid for process in psutil.Process().children(recursive=True)}
        if busy := [info for info in _noted() if info["pid"] not in ours and _at_work(info)]:
            return busy
        RWLOCK.unlink(missing_ok=True)
        _clear_run_cache()
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
