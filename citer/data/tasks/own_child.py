"""The process that grades for a task of the user: `python -m citer.data.tasks.own_child`.

It forks for each answer. The fork has an empty working directory of its own, limits, no privileges,
no input and no output. It ends after its answer, with all that it started. The process ends when
the other end of its pipe is closed, so it cannot outlive its parent.
"""

import json
import math
import os
import resource
import signal
import sys
import tempfile
import time
from contextlib import suppress
from functools import partial
from glob import glob
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import citer.program  # noqa: F401 - most graders import it, and each fork has it already
from citer.data.tasks import own_box as box
from citer.data.tasks.own_source import Limits, Source, checked_share, summed_up
from citer.errors import InputError, one_line

LARGEST_FILE = 2**24  # bytes that an answer may write into a file
LONGEST = 2**12  # bytes of a reply; a pipe takes and gives so many at once
LOOK_SECONDS = 0.2  # between two looks at what an answer has written


def main(descriptor: str, file: str, class_name: str) -> None:
    """Answer requests until the parent closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    box.boxed(partial(_serve, Connection(int(descriptor)), Path(file), class_name))


def _serve(parent: Connection, file: Path, class_name: str, is_boxed: bool) -> None:
    try:
        source = Source(file, class_name)
    except InputError as error:
        parent.send_bytes(_json({"failure": str(error)}))
        return
    if is_boxed:
        box.seal()
    box.prctl(box.SUBREAPER, 1)
    box.prctl(box.DUMPABLE, 0)  # no process without privileges can read this one and its forks
    parent.send_bytes(_json({"boxed": is_boxed}))
    limits = _rlimits(source.limits)
    with suppress(EOFError, OSError):  # the parent has ended
        while True:
            request = json.loads(parent.recv_bytes())
            parent.send_bytes(_json(_graded(source, request, limits, parent, is_boxed)))


def _json(content: dict[str, Any]) -> bytes:
    return json.dumps(content, ensure_ascii=False).encode()


def _graded(
    source: Source,
    request: dict[str, Any],
    limits: dict[int, int],
    parent: Connection,
    is_boxed: bool,
) -> dict[str, Any]:
    """Grade in a fork. It is killed after its time, or when this process or its parent ends."""
    (reader, writer), starter = os.pipe(), os.getpid()
    with box.emptied(is_boxed) as folder:
        fork = os.fork()
        if not fork:
            try:
                parent.close()
                _restrict(folder, limits, starter)
                _grade(source.own, request, writer)
            finally:
                os._exit(0)
        os.close(writer)
        reply = _awaited(reader, parent, fork, source.limits.time_limit, folder)
        status = box.end_children(fork, is_boxed)
    os.close(reader)
    how = f"by signal {-status}" if status < 0 else f"with exit status {status}"
    return reply or {"failure": f"its process ended {how} before it returned"}


def _awaited(
    reader: int, parent: Connection, fork: int, seconds: float, folder: str
) -> dict[str, Any] | None:
    """Return the fork's reply, or None if it, or the parent, ended without one."""
    deadline, ended = time.monotonic() + seconds, os.pidfd_open(fork)
    watched: list[Any] = [reader, parent, ended]
    try:
        while (left := deadline - time.monotonic()) > 0:
            ready = wait(watched, min(left, LOOK_SECONDS))
            if reader in ready and (text := os.read(reader, LONGEST)):
                return _checked(text)
            if parent in ready or ended in ready:
                return None
            if reader in ready:  # closed, but the fork has not ended: exec closes it
                watched.remove(reader)
            if _written(folder) > box.MOST_WRITTEN:
                return {"failure": f"wrote more than {box.MOST_WRITTEN:,} bytes"}
    finally:
        os.close(ended)
    return {"failure": f"timeout after {seconds:g} s"}


def _checked(text: bytes) -> dict[str, Any]:
    """Read a reply. Code that is graded may have written it."""
    with suppress(ValueError, RecursionError):
        match json.loads(text):
            case {"share": bool() | int() | float() as share} if 0 <= share <= 1:
                return {"share": share}
            case {"failure": str(failure)}:
                return {"failure": one_line(failure)}
    return {"failure": "its process sent no reply that can be read"}


def _written(folder: str) -> int:
    """Return the bytes of all files in a folder. Some may vanish meanwhile."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.lstat(f"{place}/{name}").st_blocks * 512
    return total


def _rlimits(limits: Limits) -> dict[int, int]:
    """Return the limits of an answer. The number of processes counts all of the user's."""
    wanted = {
        resource.RLIMIT_AS: int(limits.memory_limit * 2**20),
        resource.RLIMIT_CPU: math.ceil(limits.time_limit) + 1,
        resource.RLIMIT_FSIZE: LARGEST_FILE,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NPROC: box.PROCESSES + len(glob("/proc/[0-9]*/task/*")),
    }
    hardest = {kind: resource.getrlimit(kind)[1] for kind in wanted}
    return {
        kind: limit if hardest[kind] == resource.RLIM_INFINITY else min(limit, hardest[kind])
        for kind, limit in wanted.items()
    }


def _restrict(folder: str, limits: dict[int, int], starter: int) -> None:
    os.setsid()
    box.prctl(box.PARENT_DEATH, signal.SIGKILL)
    if os.getppid() != starter:
        os._exit(1)
    os.chdir(folder)
    os.environ |= {"HOME": folder, "TMPDIR": folder}
    tempfile.tempdir = None
    for kind, limit in limits.items():
        resource.setrlimit(kind, (limit, limit))
    box.give_up_privileges()


def _grade(own: Any, request: dict[str, Any], writer: int) -> None:
    method = request["method"]
    try:
        problem = SimpleNamespace(**request["problem"])
        value = getattr(own, method)(problem, *request["completions"])
        reply: dict[str, Any] = {"share": checked_share(method, value)}
    except AssertionError:  # of a test: the answer is wrong
        reply = {"share": 0.0}
    except BaseException as error:  # SystemExit, too: code that is graded may call sys.exit
        reply = {"failure": one_line(summed_up(error))}
    os.write(writer, _json(reply))


if __name__ == "__main__":
    main(*sys.argv[1:])
