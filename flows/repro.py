"""Run DVC in a child process: list the stages, and bring one of them up to date."""

import json
import os
import re
import signal
import sys
import sysconfig
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from graphlib import TopologicalSorter
from itertools import dropwhile
from select import select
from shutil import get_terminal_size
from typing import NamedTuple

from rich.text import Text

from citer.errors import InputError, TemporaryError
from citer.executors.memory import advice
from citer.stages.paths import CODE
from citer.storage.code import stage_digests
from citer.storage.tables import write_json
from flows.dvc_commands import SUPPORT, TMP, DvcError, Log, dvc, locked
from flows.leash import TIMED_OUT, Leashed, Start, execed, leashed, shell_status
from flows.mend import mend, mend_lock
from flows.own import is_own, keep_changed

REPRO = [sys.executable, "-m", "dvc", "--wait-for-lock", "repro", "--single-item"]
LOCK = TMP / "flow.lock"
DVC_ERRORS = range(251, 256)
BAD_INPUT = 2  # exit status of `citer` for errors that the user must correct
REFUSED = 1  # its exit status for errors that may pass, with a line that begins with OURS
KILLED = shell_status(-signal.SIGKILL)
OURS = "citer: "
EXITED = re.compile(r"ERROR: failed to reproduce .*, exited with (-?\d+)$")
# DVC errors that may not recur at the next attempt.
TEMPORARY = re.compile(
    r"unexpected error - | is busy, |Unable to acquire lock|\[Errno (?!2\])\d+\]"
)
# DVC ends its output with advice on git and remotes, which begins with one of these.
ADVICE = re.compile(rb"(?:Generating|Updating) lock file |Use `dvc push`")
TICK_SECONDS = 1.0


class StageError(RuntimeError):
    """The stage's command died or timed out. The next attempt may succeed."""


class Planned(NamedTuple):
    """A stage of a run."""

    fresh: bool  # known to be unchanged
    after: set[str]  # the stages that it depends on


def stage_graph() -> dict[str, set[str]]:
    """Return the stages of dvc.yaml with those that each depends on, which come before it."""
    after: dict[str, set[str]] = defaultdict(set)
    for line in dvc("dag", "--dot").splitlines():
        match re.findall(r'"([^"]+)"', line):
            case [stage]:
                after[stage]  # an entry, though it may depend on nothing
            case [earlier, later]:
                after[later].add(earlier)
    order = [name for name in TopologicalSorter(after).static_order() if not is_own(name)]
    return {name: {each for each in after[name] if not is_own(each)} for name in order}


@contextmanager
def one_run(log: Log) -> Iterator[None]:
    """Exclude other runs in this folder. DVC's own lock is not held while a stage's command runs.

    DVC's files are repaired first.
    """
    with locked(LOCK, "another run in this folder", log):
        mend(log)
        yield


def plan(log: Log) -> dict[str, Planned]:
    """Return the stages in order. Call it within `one_run`.

    A stage is `fresh` if neither it nor one that it depends on is stale.
    Raises InputError if `dvc status` fails.
    """
    # The stage `code` is stale after an edit of the code, but not after an upgrade of a library,
    # so write the digests here. No stage runs now: DVC would record the new digest with the
    # outputs of the old code.
    write_json(CODE, stage_digests())
    try:
        graph, stale = stage_graph(), json.loads(dvc("status", "--json"))
        keep_changed(stale, log)
    except DvcError as error:
        raise InputError(str(error)) from None
    fresh: set[str] = set()
    for name, after in graph.items():
        if name not in stale and after <= fresh:
            fresh.add(name)
    return {name: Planned(name in fresh, after) for name, after in graph.items()}


def reproduce(
    name: str,
    timeout: timedelta,
    log: Log,
    variables: Mapping[str, str] | None = None,
    beside: bool = False,
    tick: Callable[[], None] = lambda: None,
    start: Start = execed,
) -> bool:
    """Bring one stage up to date. Return whether its command had to run. Call it within `one_run`.

    The stage's output goes to the terminal. Without one, or if the stage runs `beside` others, it
    goes to `log`. `variables` are added to the environment. `tick` is called every second or more
    often; if it raises an exception, the stage ends. `start` starts the stage's leash. Raises
    InputError if the next attempt would fail as well, TemporaryError if the stage says that its
    cause may pass. Raises StageError if the stage died or timed out, or if DVC failed for a
    temporary reason.
    """
    output, seconds = _Output(name), timeout.total_seconds()
    terminal = sys.stderr.isatty() and not beside
    mend(log)
    environment = {**_environment(terminal), **(variables or {})}
    with leashed([*REPRO, name], seconds, environment, start) as process:
        for line in _follow(process, log, terminal, tick):
            output.read(line)
        status = process.wait()
    mend_lock(log)
    _raise_for(status, output, timeout)
    return output.ran


def _raise_for(status: int, output: "_Output", timeout: timedelta) -> None:
    """Raise what `reproduce` says about the exit status and output of DVC."""
    name = output.name
    if status == 0:
        return
    if status == TIMED_OUT:
        raise StageError(f"{name}: took longer than {timeout}")
    if output.exited == BAD_INPUT:
        raise InputError(output.last.removeprefix(OURS))
    if output.exited == REFUSED and output.last.startswith(OURS):
        raise TemporaryError(output.last.removeprefix(OURS))
    if output.exited is None and status in DVC_ERRORS:
        raise (StageError if TEMPORARY.search(output.error) else InputError)(output.error)
    if output.exited == KILLED:
        said = "killed (SIGKILL), as Linux does if memory runs out"
        raise TemporaryError(f"{name}: {said}; if it did, {advice(name)}")
    raise StageError(f"{name}: exit status {output.exited or status}: {output.last}")


@dataclass
class _Output:
    """What DVC has printed about a stage: whether it ran, and how it failed."""

    name: str
    ran: bool = False
    exited: int | None = None  # exit status of the stage's command, if that failed
    last: str = ""  # the last line that the command printed
    errors: list[str] = field(default_factory=list)  # DVC's lines from its first error on

    def read(self, line: str) -> None:
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


def _follow(process: Leashed, log: Log, terminal: bool, tick: Callable[[], None]) -> Iterator[str]:
    """Yield the lines that `process` prints, as plain text, without DVC's advice at the end."""
    partial = b""
    for chunk in _chunks(process.stdout.fileno(), tick):
        output, *advice = ADVICE.split(chunk, maxsplit=1)
        if terminal:
            os.write(sys.stderr.fileno(), output)  # unchanged: progress bars redraw themselves
        *lines, partial = (partial + output).split(b"\n")
        for line in map(_plain, lines):
            if not terminal:
                log(line)
            yield line
        if advice:  # it is not shown, but an error may follow it
            hidden = (advice[0] + process.stdout.read()).split(b"\n")
            yield from dropwhile(lambda line: not line.startswith("ERROR: "), map(_plain, hidden))
            return


def _chunks(pipe: int, tick: Callable[[], None]) -> Iterator[bytes]:
    """Yield what arrives on a pipe, until it closes. Call `tick` in between."""
    while True:
        tick()
        if select([pipe], [], [], TICK_SECONDS)[0]:
            if not (chunk := os.read(pipe, 2**16)):
                return
            yield chunk


def _plain(line: bytes) -> str:
    """Return a line without colours. If it was redrawn, return its last version."""
    return Text.from_ansi(line.decode(errors="replace").rstrip("\r").rpartition("\r")[2]).plain


def _environment(terminal: bool) -> dict[str, str]:
    """Return this environment, with the interpreter's commands first on PATH.

    For a terminal it also has the terminal's width.
    """
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)])
    environment = {**os.environ, "PATH": path}
    if terminal:
        columns = str(get_terminal_size().columns)
        environment |= {"TTY_COMPATIBLE": "1", "COLUMNS": columns}
    return environment
