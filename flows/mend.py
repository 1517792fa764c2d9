"""Mend what a killed DVC leaves in `.dvc` and in `dvc.lock`: every later call of DVC would fail.

DVC writes its table of who works on what (`rwlock`) and `dvc.lock` in place, so a kill can tear
both. The table also keeps the entries of killed processes. A kill can leave an empty folder in the
run cache. Only the project's own cache, `.dvc/cache`, is mended.
"""

import json
import re
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
from dvc.rwlock import RWLOCK_FILE, RWLOCK_LOCK
from dvc.rwlock import SCHEMA as RWLOCK_SCHEMA
from dvc.schema import COMPILED_LOCKFILE_SCHEMA as LOCK_SCHEMA
from ruamel.yaml import YAML, YAMLError
from voluptuous import Invalid

from citer.io import replacing, write_text
from flows.dvc_commands import LOCK, TMP, Log, locked

RWLOCK, GUARD = TMP / RWLOCK_FILE, TMP / RWLOCK_LOCK
DVC_LOCK = TMP / "lock"
KEPT, TORN = TMP / "dvc.lock.kept", TMP / "dvc.lock.torn"
CONFLICT = b"<<<<<<<"  # of a git merge
RUNS = Path(".dvc/cache/runs")
ENTRY = re.compile(r"[0-9a-f]{64}")

Info = dict[str, Any]  # of a process: its `pid`, its command line as `cmd`


def mend(log: Log) -> None:
    """Bring DVC's files into a state in which it works; wait for a DVC that somebody else runs."""
    told = False
    while busy := _mend(log):
        if not told:
            log(f"waiting for DVC, process {busy[0]['pid']}: {busy[0]['cmd']}")
        told = True
        time.sleep(1)


def mend_lock(log: Log) -> None:
    """Keep a copy of a whole `dvc.lock`; put the kept copy in the place of a torn one."""
    with locked(DVC_LOCK, "DVC", log):
        _mend_lock(log)


def _mend(log: Log) -> list[Info]:
    """Mend what no living DVC works on; returns the processes that do."""
    with locked(DVC_LOCK, "DVC", log):
        if busy := _drop_the_dead(log):
            return busy
        _clear_run_cache()
        _mend_lock(log)
        return []


def _drop_the_dead(log: Log) -> list[Info]:
    """Keep the entries of living processes alone in DVC's table; returns these."""
    with locked(GUARD, "DVC", log):
        table = _read_table()
        writing = {path: info for path, info in table["write"].items() if _at_work(info)}
        reading = {path: list(filter(_at_work, infos)) for path, infos in table["read"].items()}
        reading = {path: infos for path, infos in reading.items() if infos}
        write_text(RWLOCK, json.dumps({"write": writing, "read": reading}))
    return [*writing.values(), *(info for infos in reading.values() for info in infos)]


def _read_table() -> dict[str, Any]:
    """DVC's table; an empty one where there is none that can be read."""
    with suppress(FileNotFoundError, ValueError, Invalid):
        return dict(RWLOCK_SCHEMA(json.loads(RWLOCK.read_text(encoding="utf-8"))))
    return {"write": {}, "read": {}}


def _at_work(info: Info) -> bool:
    """Whether a process that noted itself is still there; another one may have its pid by now."""
    try:
        command = psutil.Process(info["pid"]).cmdline()
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True
    is_dvc = any(Path(part).name == "dvc" for part in command)
    return is_dvc or info["cmd"] == " ".join(command[1:])  # as a script that imports DVC notes it


def _clear_run_cache() -> None:
    """Remove half-written entries and folders without entries: DVC takes any file for an entry."""
    for folder in filter(Path.is_dir, RUNS.glob("*/*")):
        for file in folder.iterdir():
            if not ENTRY.fullmatch(file.name):
                file.unlink()
        with suppress(OSError):  # not empty
            folder.rmdir()


def _mend_lock(log: Log) -> None:
    if not LOCK.exists():
        KEPT.unlink(missing_ok=True)
    elif KEPT.exists() and LOCK.read_bytes() == KEPT.read_bytes():
        return
    elif whole(LOCK):
        _copy(LOCK, KEPT)
    elif CONFLICT not in LOCK.read_bytes():  # that is for the user to solve, DVC says so
        log(f"{LOCK}: cut short by a kill; the last whole one is put back, it is now {TORN}")
        _copy(LOCK, TORN)
        if KEPT.exists():
            _copy(KEPT, LOCK)
        else:
            LOCK.unlink()


def whole(file: Path) -> bool:
    """Whether it is as DVC writes it, to its last line."""
    try:
        content = file.read_text(encoding="utf-8")
        LOCK_SCHEMA(YAML(typ="safe").load(content))
    except (YAMLError, UnicodeDecodeError, Invalid):
        return False
    return content.endswith("\n")


def _copy(source: Path, target: Path) -> None:
    with replacing(target) as aside:
        shutil.copyfile(source, aside)
