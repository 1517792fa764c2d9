"""Start leashes in forks of a process that has imported the stages (`flows.preloaded`).

To import torch and transformers takes four seconds of CPU time, and a run has thirteen stages.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from threading import Lock

from flows.leash import ADOPTS, Leashed, Start, execed

GRACE_SECONDS = 1


@contextmanager
def starter(needed: bool) -> Iterator[Start]:
    """Yield what starts a leash: in a fork if that is `needed` and possible."""
    if not (needed and ADOPTS):
        yield execed
        return
    server = ForkServer()
    try:
        yield server.start
    finally:
        server.close()


class ForkServer:
    """A process that forks leashes. Threads may share it."""

    def __init__(self) -> None:
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "flows.preloaded"],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def start(self, command: Sequence[str], seconds: float, env: Mapping[str, str]) -> Leashed:
        """Start a command on a leash, as `execed` does if the server has ended.

        The first call waits until the server has imported the stages.
        """
        with suppress(ConnectionError):
            return _Forked(self._control, command, seconds, env)
        return execed(command, seconds, env)

    def close(self) -> None:
        """End the server. A leash that still runs goes on."""
        self._control.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE_SECONDS)
        self._process.kill()
        self._process.wait()


class _Forked:
    """A leash that the server forks. Raises ConnectionError if the server has ended."""

    def __init__(
        self, control: socket.socket, command: Sequence[str], seconds: float, env: Mapping[str, str]
    ) -> None:
        self._leash, theirs = socket.socketpair()
        (output, writer), (reader, lifeline) = os.pipe(), os.pipe()
        self.stdout, self._lifeline = os.fdopen(output, "rb"), os.fdopen(lifeline, "wb")
        with theirs, os.fdopen(writer), os.fdopen(reader):
            socket.send_fds(control, [b"."], [theirs.fileno(), writer, reader])
        where = {"environment": {**env}, "folder": os.getcwd()}
        request = {"command": [*command], "seconds": seconds, **where}
        self._leash.sendall(f"{json.dumps(request)}\n".encode())
        self._lines = self._leash.makefile()
        self._lock = Lock()
        self._status: int | None = None
        if not (pid := self._lines.readline()):
            raise ConnectionResetError("the fork server has ended")
        self.pid = int(pid)

    def wait(self) -> int:
        with self._lock:
            if self._status is None:
                self._status = int(self._lines.readline() or -signal.SIGKILL)
            return self._status

    def end(self) -> None:
        self._lifeline.close()
