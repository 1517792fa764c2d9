"""Run a function in a tree of processes, which ends as a whole.

    caller ── keeper ── worker ── its children, and theirs

The worker runs the function. The keeper ends all processes below it when the worker has ended, or
when the caller lets go or ends, even by SIGKILL: first with SIGTERM, so that launchers can end
their ranks, then with SIGKILL. If the keeper is killed, the worker ends the tree.
"""

import os
import re
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import get_context, parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from shutil import rmtree
from threading import Event, Thread
from typing import Any, Literal

import psutil

from citer.data.tasks.own_box import SUBREAPER, prctl
from citer.executors.base import when_closed
from citer.storage.tables import digest

GRACE_SECONDS = 10
# Where a pid has a meaning: hosts and containers may share a temporary folder.
PLACE = digest(f"{socket.gethostname()} {os.readlink('/proc/self/ns/pid')}")[:8]
NAME = re.compile(rf"citer-run-{PLACE}-(\d+)-.+")  # of such a folder; the number is a run's pid


@contextmanager
def tree(
    method: Literal["fork", "forkserver"], work: Callable[..., Any], *args: Any
) -> Iterator[Connection]:
    """Call `work` in a tree of processes. End them all on exit, and wait until they have ended.

    Yields a connection on which `received` finds what `work` has returned, unless it failed or was
    killed, then the worker's exit status, unless the keeper was killed. `method` starts the keeper.
    """
    context: Any = get_context(method)
    line, theirs = context.Pipe()
    keeper = context.Process(target=_keep, args=(theirs, work, args))
    keeper.start()
    theirs.close()
    with line:
        try:
            yield line
        finally:
            with suppress(OSError):  # they have ended
                line.send(None)
            for _ in received(line):
                pass


def received(line: Connection) -> Iterator[Any]:
    """Yield what arrives on a connection until all processes that hold its other end have ended."""
    with suppress(EOFError, OSError):
        while True:
            yield line.recv()


def shell_status(status: int) -> int:
    """Return 128 + N if signal N ended a process, as shells do; else its exit status."""
    return status if status >= 0 else 128 - status


KILLED = shell_status(-signal.SIGKILL)


def _keep(caller: Connection, work: Callable[..., Any], args: Sequence[Any]) -> None:
    """Be the keeper, in a session of its own, which signals from the terminal do not reach."""
    os.setsid()
    prctl(SUBREAPER, 1)  # orphaned descendants become children, so that none is lost
    worker = get_context("fork").Process(target=_work, args=(caller, work, args))
    worker.start()
    Thread(target=_end_with, args=(caller, worker), daemon=True).start()
    worker.join()
    _end_descendants()
    with suppress(OSError):  # the caller has ended
        caller.send(shell_status(worker.exitcode or 0))


def _end_with(caller: Connection, worker: BaseProcess) -> None:
    """End the worker when the caller lets go, or ends. The main thread then ends the others."""
    wait([caller, _parent().sentinel])
    worker.terminate()
    time.sleep(GRACE_SECONDS)
    worker.kill()


def _work(caller: Connection, work: Callable[..., Any], args: Sequence[Any]) -> None:
    when_closed(_parent().sentinel, end_all)
    try:
        caller.send(work(*args))
    finally:
        wait_for_end()


def wait_for_end() -> None:
    """Wait for `end_all` if the worker, which calls this, has lost its keeper.

    It ends the children first, and `subprocess` may take a killed one for one that succeeded.
    """
    if not _parent().is_alive():
        Event().wait()


def _parent() -> BaseProcess:
    parent = parent_process()
    assert parent
    return parent


def end_all() -> None:
    """End all descendants, then this process."""
    prctl(SUBREAPER, 1)
    _end_descendants()
    os._exit(1)


def _end_descendants() -> None:
    """End parents before children, so that a command can still use its children to shut down."""
    with suppress(ChildProcessError):  # the kernel's word that there is none
        while True:  # psutil reads the table while it changes, and can miss an orphan's move
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            descendants = psutil.Process().children()
            _send(signal.SIGTERM, descendants)
            _, alive = psutil.wait_procs(descendants, GRACE_SECONDS)
            _send(signal.SIGKILL, alive)
            psutil.wait_procs(alive)


def _send(number: signal.Signals, processes: list[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


def run_command(*command: str) -> int:
    """Run a command in this terminal, as the worker of a tree, and return its exit status.

    Its last argument will be the pid of its keeper: if that is no longer its parent, it must call
    `end_all`.
    """
    with tempdir() as temporary, tree("fork", _become, command, str(temporary)) as line:
        return next(received(line), KILLED)


def _become(command: Sequence[str], temporary: str) -> None:
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.execve(command[0], [*command, str(os.getppid())], {**os.environ, "TMPDIR": temporary})


@contextmanager
def tempdir() -> Iterator[Path]:
    """Yield an empty temporary folder; remove it at the end, and those of killed runs first."""
    for old in Path(tempfile.gettempdir()).iterdir():
        named = NAME.fullmatch(old.name)
        if named and (int(named[1]) == os.getpid() or not psutil.pid_exists(int(named[1]))):
            rmtree(old, ignore_errors=True)  # fails silently for another user's folder
    prefix = f"citer-run-{PLACE}-{os.getpid()}-"
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as folder:
        yield Path(folder)
