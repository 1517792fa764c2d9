"""Grade with code of the user, in a child process with limits of time and memory.

The child (`citer.data.tasks.own_child`) imports the user's file once and forks for each answer, so
no answer can change how another one is graded. `docs/own-data.md` says what the code is kept from.
"""

import json
import multiprocessing
import os
import site
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import cache
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Lock
from typing import Any
from weakref import finalize

from citer.data.problems import Problem
from citer.data.tasks.own_source import Source
from citer.data.tasks.task import GraderError
from citer.errors import InputError
from citer.progress import warn

CHILD = "citer.data.tasks.own_child"
HOME = Path(__file__).parents[3]  # the folder that holds the package
START_SECONDS = 150  # for the import of the user's file, twice if namespaces are refused
GRACE_SECONDS = 30  # after which a child that does not end a timed-out answer is replaced
END_SECONDS = 1
KEPT = ("PATH", "LD_LIBRARY_PATH", "LANG", "LANGUAGE", "TZ")  # variables, besides LC_*
UNBOXED = (
    "the kernel refuses namespaces: code that graders run can use the network and your files; "
    "docs/own-data.md tells how to allow them"
)
SENT = ("problem_id", "task", "question", "answer", "reference")


# Held by the process that has warned: all tasks share it, and all processes that this one forks.
_warning = cache(multiprocessing.Lock)


class Grader:
    """Grades answers to problems of one task. Each process starts a child at its first answer."""

    def __init__(self, source: Source) -> None:
        self.source, self._warning = source, _warning()
        self._child: _Child | None = None
        self._lock = Lock()

    def share(self, method: str, problem: Problem, *completions: str) -> float:
        """Return what `grade` or `same` returns for a completion or two, as a share.

        Raises GraderError if the method fails, and InputError if its process does not start.
        """
        fields = {name: getattr(problem, name) for name in SENT}
        request = {"method": method, "problem": fields, "completions": completions}
        with self._lock:
            if self._child is None or not self._child.can_be_asked:
                self._child = _Child(self.source)
                if not self._child.is_boxed and self._warning.acquire(block=False):
                    warn(UNBOXED)
            reply = self._child.ask(request)
        if "failure" in reply:
            raise GraderError(reply["failure"])
        return float(reply["share"])


class _Child:
    def __init__(self, source: Source) -> None:
        self.owner = os.getpid()
        self.patience = source.limits.time_limit + GRACE_SECONDS
        self.pipe, self.process = _started(source)
        self.end = finalize(self, _end, self.owner, self.process, self.pipe)
        reply = self._reply(START_SECONDS)
        if "failure" in reply:
            self.end()
            raise InputError(f"{source.file}: the grader's process: {reply['failure']}")
        self.is_boxed: bool = reply["boxed"]

    @property
    def can_be_asked(self) -> bool:
        """Whether it runs and was started by this process. A forked process starts its own."""
        return self.owner == os.getpid() and self.process.poll() is None

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        with suppress(OSError):  # the child has ended, so that there is no reply
            self.pipe.send_bytes(json.dumps(request).encode())
        return self._reply(self.patience)

    def _reply(self, seconds: float) -> dict[str, Any]:
        with suppress(OSError, EOFError):
            if self.pipe.poll(seconds):
                reply: dict[str, Any] = json.loads(self.pipe.recv_bytes())
                return reply
        self.end()
        return {"failure": f"its process ended with exit status {self.process.returncode}"}


def _end(owner: int, process: "subprocess.Popen[bytes]", pipe: Connection) -> None:
    """End the child. A fork of the owner leaves it alone."""
    if owner == os.getpid():
        pipe.close()  # it ends by itself, with the answer that it grades
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _started(source: Source) -> tuple[Connection, "subprocess.Popen[bytes]"]:
    ours, theirs = Pipe()
    place = (str(theirs.fileno()), str(source.file), source.class_name)
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", CHILD, *place],
        env=_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=[theirs.fileno()],
        start_new_session=True,  # ^C must not end it before its parent
    )
    theirs.close()  # now only the child holds it: reading fails when the child ends
    return ours, process


def _environment() -> dict[str, str]:
    """Let the child import citer, hash texts alike and start no threads. Keys stay here."""
    kept = {name: v for name, v in os.environ.items() if name in KEPT or name.startswith("LC_")}
    paths = [str(HOME), *filter(None, [os.environ.get("PYTHONPATH")])]
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    python = {
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONHASHSEED": "0",
        "TMPDIR": tempfile.gettempdir(),  # which the box hides
        "PYTHONUSERBASE": site.getuserbase(),
    }
    return kept | threads | python
