"""The process that grades for a task of the user: `python -m citer.data.tasks.own.child`.

It forks for each answer. The fork has a session and an empty working directory of its own, limits,
no input, and its output is dropped. It ends after its answer, and all that it started with it. The
process ends when the other end of its pipe is closed, so it cannot outlive its parent.
"""

import json
import math
import os
import resource
import signal
import sys
import time
from contextlib import suppress
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

from citer.data.tasks.own.source import Limits, Source, checked_share, summed_up
from citer.errors import InputError, one_line
from citer.lifeline import when_closed

LARGEST_FILE = 2**24  # bytes that an answer may write into a file
LONGEST = 2**16  # bytes of a reply


def main(descriptor: str, file: str, class_name: str) -> None:
    """Answer requests until the parent closes the pipe."""
    parent = Connection(int(descriptor))
    try:
        source = Source(Path(file), class_name)
    except InputError as error:
        parent.send_bytes(_json({"failure": str(error)}))
        return
    parent.send_bytes(_json({}))
    with suppress(EOFError, OSError):  # the parent has ended
        while True:
            request = json.loads(parent.recv_bytes())
            parent.send_bytes(_json(_graded(source.own, request, source.limits, parent)))


def _json(content: dict[str, Any]) -> bytes:
    return json.dumps(content).encode()


def _graded(
    own: Any, request: dict[str, Any], limits: Limits, parent: Connection
) -> dict[str, Any]:
    """Grade in a fork. It is killed after its time, or when this process or its parent ends."""
    (reader, writer), lifeline = Pipe(duplex=False), os.pipe()
    with TemporaryDirectory(prefix="citer-grader-", ignore_cleanup_errors=True) as folder:
        fork = os.fork()
        if not fork:
            try:
                parent.close()
                _restrict(folder, limits, lifeline)
                _grade(own, request, writer)
            finally:
                os._exit(0)
        writer.close()
        reply = _awaited(reader, parent, fork, limits.time_limit)
        status = _end(fork)
    reader.close()
    for end in lifeline:
        os.close(end)
    return reply or {"failure": _ending(status)}


def _awaited(
    reader: Connection, parent: Connection, fork: int, seconds: float
) -> dict[str, Any] | None:
    """Return the fork's reply, or None if it, or the parent, ended without one."""
    deadline = time.monotonic() + seconds
    ready = wait([reader, parent], seconds)
    if reader in ready and (reply := _reply(reader)):
        return reply
    if parent in ready or _ends(fork, parent, deadline - time.monotonic()):
        return None
    return {"failure": f"timeout after {seconds:g} s"}


def _ends(fork: int, parent: Connection, seconds: float) -> bool:
    """Wait until the fork or the parent ends. A closed pipe does not show it: exec closes it."""
    ended = os.pidfd_open(fork)
    try:
        return bool(wait([ended, parent], max(seconds, 0)))
    finally:
        os.close(ended)


def _restrict(folder: str, limits: Limits, lifeline: tuple[int, int]) -> None:
    os.setsid()
    os.close(lifeline[1])  # now only the process that forked holds it
    when_closed(lifeline[0], partial(os.killpg, 0, signal.SIGKILL))
    os.chdir(folder)
    most = {
        resource.RLIMIT_AS: int(limits.memory_limit * 2**20),
        resource.RLIMIT_CPU: math.ceil(limits.time_limit) + 1,
        resource.RLIMIT_FSIZE: LARGEST_FILE,
        resource.RLIMIT_CORE: 0,
    }
    for kind, limit in most.items():
        hardest = resource.getrlimit(kind)[1]
        least = limit if hardest == resource.RLIM_INFINITY else min(limit, hardest)
        resource.setrlimit(kind, (least, least))


def _grade(own: Any, request: dict[str, Any], writer: Connection) -> None:
    method = request["method"]
    try:
        problem = SimpleNamespace(**request["problem"])
        value = getattr(own, method)(problem, *request["completions"])
        reply: dict[str, Any] = {"share": checked_share(method, value)}
    except BaseException as error:  # SystemExit, too: code that is graded may call sys.exit
        reply = {"failure": one_line(summed_up(error))}
    writer.send_bytes(_json(reply))


def _reply(reader: Connection) -> dict[str, Any] | None:
    try:
        reply: dict[str, Any] = json.loads(reader.recv_bytes(LONGEST))
    except (EOFError, OSError, ValueError):
        return None
    return reply


def _end(fork: int) -> int:
    """Kill the fork and its session. Return its exit code, negative for a signal."""
    for kill in (os.killpg, os.kill):  # it may not have a session yet
        with suppress(ProcessLookupError):
            kill(fork, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(fork, 0)[1])


def _ending(status: int) -> str:
    how = f"by signal {-status}" if status < 0 else f"with exit status {status}"
    return f"its process ended {how} before it returned"


if __name__ == "__main__":
    main(*sys.argv[1:])
