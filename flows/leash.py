"""Run a command that never outlives its caller and leaves no process behind.

`python -m flows.leash SECONDS COMMAND …` reads a pipe from its caller. The pipe closes when the
caller ends, even by SIGKILL. Then, or after SECONDS, the leash ends the command and all its
descendants: first with SIGTERM, so that launchers can end their ranks, then with SIGKILL.
If the leash itself is killed, `leashed` in the caller and `end_with_the_leash` in the command end
the command. `flows.forkserver` starts leashes faster.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import BufferedReader, BufferedWriter
from typing import Protocol

import psutil

from citer.executors.lifeline import when_closed
from flows.scratch import scratch

TIMED_OUT = 124  # the exit status of timeout(1)
GRACE_SECONDS = 10
PR_SET_CHILD_SUBREAPER = 36
ADOPTS = sys.platform == "linux"
LEASH = "CITER_LEASH"  # file descriptor of a pipe that closes when the leash ends


class Leashed(Protocol):
    """A leash that runs. `stdout` carries both output streams of its command."""

    stdout: BufferedReader
    pid: int

    def wait(self) -> int:
        """Wait until the command has ended and return its exit status, TIMED_OUT if it timed out.

        It is negative if the leash was killed.
        """

    def end(self) -> None:
        """Let the leash end its command."""


Start = Callable[[Sequence[str], float, Mapping[str, str]], Leashed]


class _Execed(subprocess.Popen[bytes]):
    stdin: BufferedWriter
    stdout: BufferedReader

    def end(self) -> None:
        self.stdin.close()


def execed(command: Sequence[str], seconds: float, env: Mapping[str, str]) -> Leashed:
    """Start a command on a leash, which leads a process group of its own."""
    return _Execed(
        [sys.executable, "-m", "flows.leash", str(seconds), *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=env,
        start_new_session=True,
    )


@contextmanager
def leashed(
    command: Sequence[str], seconds: float, env: Mapping[str, str], start: Start = execed
) -> Iterator[Leashed]:
    """Start `command` on a leash, for at most `seconds`, and end all its processes on exit."""
    process = start(command, seconds, env)
    watch = threading.Thread(target=_end_group_after, args=(process,), daemon=True)
    watch.start()
    try:
        yield process
    finally:
        process.end()
        watch.join()
        process.stdout.close()


def _end_group_after(leash: Leashed) -> None:
    """Kill the processes left in the leash's group. There are some if the leash was killed."""
    leash.wait()
    with suppress(ProcessLookupError):
        os.killpg(leash.pid, signal.SIGKILL)


def held(command: Sequence[str]) -> int:
    """Run `command` in this terminal and return its exit status.

    If this process ends, so do all processes of the command, which must call `end_with_the_leash`.
    """
    leash = [sys.executable, "-m", "flows.leash", "inf", *command]
    pipe = subprocess.PIPE
    with scratch() as temporary:
        env = os.environ | {"TMPDIR": str(temporary)}
        with subprocess.Popen(leash, stdin=pipe, env=env, start_new_session=True) as process:
            return shell_status(process.wait())


def end_with_the_leash() -> None:
    """End all descendants and exit when the leash ends. Does nothing without a leash."""
    if pipe := os.environ.pop(LEASH, None):
        when_closed(int(pipe), end_all)


def end_all() -> None:
    """End all descendants, then this process."""
    _adopt_orphans()
    _end_descendants()
    os._exit(1)


def hold(seconds: float, command: Sequence[str], caller: int) -> int:
    """Run the command and return its exit status, or 128 + N if signal N killed it.

    `caller` is the descriptor of a pipe or socket that closes when the caller ends.
    """
    _adopt_orphans()
    lower, _ = os.pipe()  # the other end closes when this process, its only holder, ends
    env = os.environ | {LEASH: str(lower)}
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[lower], env=env)
    os.close(lower)
    when_closed(caller, _end_descendants)
    try:
        status = child.wait(seconds)
    except subprocess.TimeoutExpired:
        status = TIMED_OUT
    _end_descendants()
    return shell_status(status)


def shell_status(status: int) -> int:
    """Return 128 + N if signal N ended a process, as shells do; else its exit status."""
    return status if status >= 0 else 128 - status


def _adopt_orphans() -> None:
    """Make this process the new parent of orphaned descendants, so that none is lost."""
    if ADOPTS:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _end_descendants() -> None:
    """End parents before children, so that a command can still use its children to shut down.

    On a system where orphans are not adopted, end all descendants at once.
    """
    while descendants := psutil.Process().children(recursive=not ADOPTS):
        _send(signal.SIGTERM, descendants)
        _, alive = psutil.wait_procs(descendants, GRACE_SECONDS)
        _send(signal.SIGKILL, alive)
        psutil.wait_procs(alive)


def _send(number: signal.Signals, processes: list[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(number)


if __name__ == "__main__":
    sys.exit(hold(float(sys.argv[1]), sys.argv[2:], sys.stdin.fileno()))
