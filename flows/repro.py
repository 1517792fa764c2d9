"""DVC as a child process: which stages there are, and one of them brought up to date."""

import json
import os
import re
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from graphlib import TopologicalSorter
from itertools import dropwhile, takewhile
from shutil import get_terminal_size

from rich.text import Text

from citer.closure import stage_digests
from citer.errors import InputError
from citer.io import write_json
from citer.stages.paths import CODE
from flows.dvc_commands import SUPPORT, TMP, DvcError, Log, dvc, locked
from flows.leash import TIMED_OUT, Leashed, leashed, shell_status
from flows.mend import mend, mend_lock

REPRO = [sys.executable, "-m", "dvc", "--wait-for-lock", "repro", "--single-item"]
LOCK = TMP / "flow.lock"
DVC_ERRORS = range(251, 256)
BAD_INPUT = 2  # the exit status of `citer` for what its user must mend
EXITED = re.compile(r"ERROR: failed to reproduce .*, exited with (-?\d+)$")
# What may go well the next time, of all that DVC itself fails on.
PASSING = re.compile(r"unexpected error - | is busy, |Unable to acquire lock|\[Errno (?!2\])\d+\]")
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


def plan(log: Log) -> dict[str, bool]:
    """The stages in order; true for those that DVC need not be asked about again.

    These are the stages before the first stale one. The later ones may depend on what it writes.
    Raises InputError where DVC cannot tell.
    """
    with _one_at_a_time(log):
        mend(log)
        # DVC sees edited code by itself, other versions of libraries by these digests alone. No
        # stage runs meanwhile: DVC would note the new digest beside what the old code wrote.
        write_json(CODE, stage_digests())
        try:
            names, stale = stage_names(), json.loads(dvc("status", "--json"))
        except DvcError as error:
            raise InputError(str(error)) from None
    fresh = set(takewhile(lambda name: name not in stale, names))
    return {name: name in fresh for name in names}


def reproduce(name: str, timeout: timedelta, log: Log) -> bool:
    """Bring one stage up to date; False where its command did not have to run.

    What the stage prints goes to the terminal, or to `log` where there is none. Raises
    InputError where it would say the same the next time, StageError where it died, took longer
    than `timeout`, or DVC failed for a reason that may pass.
    """
    said, seconds = _Said(name), timeout.total_seconds()
    with _one_at_a_time(log):
        mend(log)
        with leashed([*REPRO, name], seconds, _environment()) as process:
            for line in _follow(process, log):
                said.hear(line)
            status = process.wait()
        mend_lock(log)
    if status == 0:
        return said.ran
    if status == TIMED_OUT:
        raise StageError(f"{name}: took longer than {timeout}")
    if said.exited == BAD_INPUT:
        raise InputError(said.last.removeprefix("citer: "))
    if said.exited is None and status in DVC_ERRORS:
        raise (StageError if PASSING.search(said.error) else InputError)(said.error)
    raise StageError(f"{name}: exit status {said.exited or status}: {said.last}")


@dataclass
class _Said:
    """What DVC has printed of a stage, as far as its end is to be told from it."""

    name: str
    ran: bool = False
    exited: int | None = None  # the status of the stage's command, where that was the failure
    last: str = ""  # of the command
    errors: list[str] = field(default_factory=list)  # DVC's own, from its first one on

    def hear(self, line: str) -> None:
        if line == f"Running stage '{self.name}':":
            self.ran = True
        elif failure := EXITED.match(line):
            self.exited = shell_status(int(failure[1]))
        elif (self.errors and not line.startswith(SUPPORT)) or line.startswith("ERROR: "):
            self.errors.append(line.removeprefix("ERROR: "))
        if line.strip() and self.exited is None:
            self.last = line

    @property
    def error(self) -> str:
        return "\n".join(self.errors).strip() or self.last


@contextmanager
def _one_at_a_time(log: Log) -> Iterator[None]:
    """Wait for other flow runs: while a stage's command runs, DVC's own lock is not held."""
    with locked(LOCK, "a stage of another run in this folder", log):
        yield


def _follow(process: Leashed, log: Log) -> Iterator[str]:
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
        if advice:  # not to be shown, but an error may follow
            hidden = (advice[0] + process.stdout.read()).split(b"\n")
            yield from dropwhile(lambda line: not line.startswith("ERROR: "), map(_plain, hidden))
            return


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
