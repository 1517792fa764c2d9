"""Run a command that cannot outlive its caller, nor leave a process behind.

`python -m flows.leash SECONDS COMMAND …` holds the other end of a pipe to its caller. When that
closes, on a cancel or even a SIGKILL of the caller, or when the time is up, the command and all
that it started end: SIGTERM first, so that launchers can end their ranks, then SIGKILL.
A SIGKILL of the leash itself ends the command, too: `leashed` watches for it from above, and
`end_with_the_leash` from below.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from io import BufferedReader, BufferedWriter

import psutil

from citer.lifeline import when_closed
from flows.scratch import scratch

TIMED_OUT = 124  # as timeout(1) has it
GRACE_SECONDS = 10
PR_SET_CHILD_SUBREAPER = 36
ADOPTS = sys.platform == "linux"
LEASH = "CITER_LEASH"  # a pipe's end: closed with the leash that set it


class Leashed(subprocess.Popen[bytes]):
    stdin: BufferedWriter
    stdout: BufferedReader


@contextmanager
def leashed(command: Sequence[str], seconds: float, env: Mapping[str, str]) -> Iterator[Leashed]:
    """Start `command` in a process group of its own; on leaving, nothing of it is left.

    Both its streams come on `stdout`. Its status is TIMED_OUT where it took over `seconds`.
    """
    process = Leashed(
        [sys.executable, "-m", "flows.leash", str(seconds), *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=env,
        start_new_session=True,
    )
    watch = threading.Thread(target=_end_group_after, args=(process,), daemon=True)
    watch.start()
    try:
        yield process
    finally:
        process.stdin.close()
        watch.join()
        process.stdout.close()


def _end_group_after(leash: Leashed) -> None:
    """A leash that ended by itself has left nothing in its group; one that was killed has."""
    leash.wait()
    with suppress(ProcessLookupError):
        os.killpg(leash.pid, signal.SIGKILL)


def held(command: Sequence[str]) -> int:
    """Run `command` on our own terminal to its end; whatever ends us, nothing of it is left.

    Returns its exit status. The command is to call `end_with_the_leash`.
    """
    leash = [sys.executable, "-m", "flows.leash", "inf", *command]
    pipe = subprocess.PIPE
    with scratch() as temporary:
        env = os.environ | {"TMPDIR": str(temporary)}
        with subprocess.Popen(leash, stdin=pipe, env=env, start_new_session=True) as process:
            return shell_status(process.wait())


def end_with_the_leash() -> None:
    """Where we run on a leash: when it is killed, end all that we started, then ourselves."""
    if pipe := os.environ.pop(LEASH, None):
        when_closed(int(pipe), end_all)


def end_all() -> None:
    """End this process, and before it all that it started."""
    _adopt_orphans()
    _end_descendants()
    os._exit(1)


def main(seconds: float, command: Sequence[str]) -> int:
    """Return the command's exit status, 128 + N where signal N killed it."""
    _adopt_orphans()
    lower, _ = os.pipe()  # the other end stays with us alone, and closes with us
    env = os.environ | {LEASH: str(lower)}
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[lower], env=env)
    os.close(lower)
    when_closed(sys.stdin.fileno(), _end_descendants)
    try:
        status = child.wait(seconds)
    except subprocess.TimeoutExpired:
        status = TIMED_OUT
    _end_descendants()
    return shell_status(status)


def shell_status(status: int) -> int:
    """128 + N where signal N ended a process, as shells have it; else its exit status."""
    return status if status >= 0 else 128 - status


def _adopt_orphans() -> None:
    """Become the parent of descendants whose own parent dies, so that none is lost."""
    if ADOPTS:
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _end_descendants() -> None:
    """From the top down, where orphans come to us: what a command still needs outlives it."""
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
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
