"""DVC as a child process: which stages there are, and one of them brought up to date."""

import fcntl
import json
import os
import re
import sys
import sysconfig
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from graphlib import TopologicalSorter
from itertools import takewhile
from pathlib import Path
from shutil import get_terminal_size

from rich.text import Text

from citer.errors import InputError
from flows.dvc import dvc
from flows.leash import TIMED_OUT, Leashed, leashed, shell_status

REPRO = [sys.executable, "-m", "dvc", "--wait-for-lock", "repro", "--single-item"]
LOCK = Path(".dvc/tmp/flow.lock")
DVC_ERROR = 255
BAD_INPUT = 2  # the exit status of `citer` for what its user must mend
EXITED = re.compile(r"ERROR: failed to reproduce .*, exited with (-?\d+)$")
# On git and remotes, to the end of what DVC prints.
ADVICE = re.compile(rb"(?:Generating|Updating) lock file |Use `dvc push`")


class StageError(RuntimeError):
    """The stage's command died or ran out of time: it may go well the next time."""


def stage_names() -> list[str]:
    """The stages of dvc.yaml, each after those that it depends on."""
    order: TopologicalSorter[str] = TopologicalSorter()
    for line in dvc("dag", "--dot").splitlines():
        match re.findall(r'"([^"]+)"', line):
            case [stage]:
                order.add(stage)
            case [earlier, later]:
                order.add(later, earlier)
    return list(order.static_order())


def fresh_stages(names: Sequence[str], log: Callable[[str], None]) -> set[str]:
    """The stages before the first one that DVC calls stale. `names` are in order.

    The later ones depend on what the stale ones will write, so DVC must be asked about each.
    """
    with _one_at_a_time(log):
        stale = json.loads(dvc("status", "--json"))
    return set(takewhile(lambda name: name not in stale, names))


def reproduce(name: str, timeout: timedelta, log: Callable[[str], None]) -> bool:
    """Bring one stage up to date; False where its command did not have to run.

    What the stage prints goes to the terminal, or to `log` where there is none. Raises
    InputError where it would say the same the next time, StageError where it died or took longer
    than `timeout`.
    """
    ran, exited, last = False, None, ""
    seconds = timeout.total_seconds()
    with _one_at_a_time(log), leashed([*REPRO, name], seconds, _environment()) as process:
        for line in _follow(process, log):
            if line == f"Running stage '{name}':":
                ran = True
            elif failure := EXITED.match(line):
                exited = shell_status(int(failure[1]))
            elif line.strip():
                last = line
        status = process.wait()
    if status == 0:
        return ran
    if status == TIMED_OUT:
        raise StageError(f"{name}: took longer than {timeout}")
    if exited == BAD_INPUT or (exited is None and status == DVC_ERROR):
        raise InputError(last.removeprefix("citer: ").removeprefix("ERROR: "))
    raise StageError(f"{name}: exit status {exited or status}: {last}")


@contextmanager
def _one_at_a_time(log: Callable[[str], None]) -> Iterator[None]:
    """Wait for other flow runs: while a stage's command runs, DVC's own lock is not held."""
    LOCK.parent.mkdir(parents=True, exist_ok=True)
    with LOCK.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log("waiting for a stage of another run in this folder")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _follow(process: Leashed, log: Callable[[str], None]) -> Iterator[str]:
    """Yield what `process` prints, line by line, as plain text, until DVC turns to advice."""
    terminal, partial = sys.stderr.isatty(), b""
    while chunk := process.stdout.read1():
        output, *advice = ADVICE.split(chunk, maxsplit=1)
        if terminal:
            os.write(sys.stderr.fileno(), output)  # untouched: progress bars redraw in place
        *lines, partial = (partial + output).split(b"\n")
        for line in map(_plain, lines):
            if not terminal:
                log(line)
            yield line
        if advice:
            break


def _plain(line: bytes) -> str:
    """What is left to see of a line: no colours, and a redrawn one as it was last drawn."""
    return Text.from_ansi(line.decode(errors="replace").rstrip("\r").rpartition("\r")[2]).plain


def _environment() -> dict[str, str]:
    """Ours, with this interpreter's commands first, and the terminal's size where there is one."""
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)])
    environment = {**os.environ, "PATH": path}
    if sys.stderr.isatty():
        columns = str(get_terminal_size().columns)
        environment |= {"TTY_COMPATIBLE": "1", "COLUMNS": columns}
    return environment
