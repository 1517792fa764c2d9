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
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, NoReturn

from citer.data.tasks.own.source import Source, checked_share, summed_up
from citer.errors import InputError, one_line

LARGEST_FILE = 2**24  # bytes that an answer may write into a file
LONGEST = 2**16  # bytes of a reply


def main(descriptor: str, file: str, class_name: str, seconds: str, mebibytes: str) -> None:
    """Answer requests until the parent closes the pipe."""
    parent = Connection(int(descriptor))
    try:
        own = Source(Path(file), class_name).own
    except InputError as error:
        parent.send_bytes(_json({"failure": str(error)}))
        return
    parent.send_bytes(_json({}))
    with suppress(EOFError, OSError):  # the parent has ended
        while True:
            request = json.loads(parent.recv_bytes())
            parent.send_bytes(_json(_graded(own, request, float(seconds), mebibytes, parent)))


def _json(content: dict[str, Any]) -> bytes:
    return json.dumps(content).encode()


def _graded(
    own: Any, request: dict[str, Any], seconds: float, mebibytes: str, parent: Connection
) -> dict[str, Any]:
    """Grade in a fork. It is killed after `seconds`, or when the parent ends."""
    reader, writer = Pipe(duplex=False)
    with TemporaryDirectory(prefix="citer-grader-", ignore_cleanup_errors=True) as folder:
        fork = os.fork()
        if not fork:
            parent.close()
            _grade(own, request, partial(_restrict, folder, seconds, float(mebibytes)), writer)
        writer.close()
        ready = wait([reader, parent], seconds)
        reply = _reply(reader) if reader in ready else None
        status = _end(fork)
        reader.close()
    if not ready:
        return {"failure": f"timeout after {seconds:g} s"}
    return reply or {"failure": f"its process ended {_ending(status)}"}


def _restrict(folder: str, seconds: float, mebibytes: float) -> None:
    os.setsid()
    os.chdir(folder)
    bytes_, cpu = int(mebibytes * 2**20), math.ceil(seconds) + 1
    limits = {
        resource.RLIMIT_AS: bytes_,
        resource.RLIMIT_CPU: cpu,
        resource.RLIMIT_FSIZE: LARGEST_FILE,
        resource.RLIMIT_CORE: 0,
    }
    for kind, limit in limits.items():
        hardest = resource.getrlimit(kind)[1]
        least = limit if hardest == resource.RLIM_INFINITY else min(limit, hardest)
        resource.setrlimit(kind, (least, least))


def _grade(
    own: Any, request: dict[str, Any], restrict: Callable[[], None], writer: Connection
) -> NoReturn:
    try:
        restrict()
        problem = SimpleNamespace(**request["problem"])
        reply: dict[str, Any] = {"share": checked_share(own.grade(problem, request["completion"]))}
    except BaseException as error:  # SystemExit, too: code that is graded may call sys.exit
        reply = {"failure": one_line(summed_up(error))}
    writer.send_bytes(_json(reply))
    os._exit(0)


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
    if status < 0:
        return f"by {signal.Signals(-status).name}"
    return f"with exit status {status} before it returned"


if __name__ == "__main__":
    main(*sys.argv[1:])
