"""List the stages of dvc.yaml, and bring one of them up to date in a process of its own."""

import json
import os
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import chain
from multiprocessing import Pipe, set_forkserver_preload, util
from multiprocessing.connection import Connection
from operator import attrgetter
from pathlib import Path
from threading import Thread

from dvc.repo import Repo
from networkx import dfs_postorder_nodes, relabel_nodes
from rich.text import Text

from citer.config.params import load_params
from citer.errors import InputError, TemporaryError
from citer.stages.paths import CODE
from citer.storage.code import stage_digests
from citer.storage.tables import PARTIAL, remove, write_json
from flows import stage_process
from flows.dvc_commands import TMP, Log, dvc, locked
from flows.own import SUFFIX, named, refuse_changed
from flows.process_tree import received, tree
from flows.repair_dvc import repair
from flows.stage_process import failure

LOCK = TMP / "flow.lock"
ITERATED = ("preferences", "routers", "answers", "reports", "transcripts")  # a folder for each k
LAST_SECONDS = 10.0  # to wait for the last lines; a process that a kill left may hold the pipe

# Every process of a stage imports the main module of the flow. A Prefect worker's takes seconds.
MAIN = getattr(sys.modules["__main__"].__spec__, "name", "__main__")
set_forkserver_preload(["flows.preload", *([] if MAIN.endswith("__main__") else [MAIN])])


def stage_graph() -> dict[str, set[str]]:
    """Return the stages of dvc.yaml with those that each depends on, which come before it.

    What a choice needs comes first, so that a rule is chosen, and can serve, as early as possible.
    """
    with Repo() as repo:
        graph = relabel_nodes(repo.index.graph, attrgetter("addressing"))
    names = [name for name in graph if not name.endswith(SUFFIX)]  # those have no command
    graph = graph.subgraph(names)
    targets = sorted(names, key=lambda name: not name.startswith("choose"))
    ordered = (dfs_postorder_nodes(graph, name, sort_neighbors=sorted) for name in targets)
    return {name: {*graph[name]} for name in dict.fromkeys(chain.from_iterable(ordered))}


@contextmanager
def one_run(log: Log) -> Iterator[None]:
    """Exclude other runs, as DVC's own lock does not while a stage runs; repair DVC's files."""
    _shorten_paths_of_sockets()
    with locked(LOCK, "another run in this folder", log):
        repair(log)
        yield


def _shorten_paths_of_sockets() -> None:
    """Name the fork server's folder by a short path: one of a socket has at most 107 characters."""
    folder = os.open(tempfile.gettempdir(), os.O_RDONLY)
    tempfile.tempdir = f"/proc/{os.getpid()}/fd/{folder}"
    util.get_temp_dir()  # made once for all processes
    tempfile.tempdir = None


def plan() -> dict[str, bool]:
    """Return the stages in order, and of each whether it is known to be fresh.

    A stage is fresh if neither it nor one that it depends on is stale. Call this within `one_run`.
    Raises InputError if `dvc status` fails, or if a versioned question has changed or is missing.
    """
    # The stage `code` is stale after an edit of the code, but not after an upgrade of a library,
    # so write the digests here. No stage runs now: DVC would record the new digest with the
    # outputs of the old code.
    write_json(CODE, stage_digests())
    _put_aside()
    try:
        stale = json.loads(dvc("status", "--json"))
    except TemporaryError as error:
        raise InputError(str(error)) from None
    refuse_changed(named(map(Path, sorted(stale))))
    fresh: dict[str, bool] = {}
    for name, after in stage_graph().items():
        fresh[name] = name not in stale and all(fresh[earlier] for earlier in after)
    return fresh


def _put_aside() -> None:
    """Move away what is left of iterations that params.yaml has no more.

    `report` depends on whole folders, and would be stale wherever these are not.
    """
    known = load_params().iterations
    for left in [*Path("data").glob("*/[1-9]*")]:
        if left.parent.name in ITERATED and left.name.isdecimal() and left.name not in known:
            remove(aside := PARTIAL / "unused" / left.relative_to("data"))
            aside.parent.mkdir(parents=True, exist_ok=True)
            left.rename(aside)


def reproduce(name: str, timeout: timedelta, log: Log) -> bool:
    """Bring one stage up to date. Return whether its command had to run. Call it within `one_run`.

    The stage's output goes to the terminal, or without one to `log`. Raises InputError if the next
    attempt would fail as well, TemporaryError if not: the stage died or timed out, or the cause may
    pass.
    """
    repair(log)
    # The interpreter's commands come first.
    path = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)])
    environment = {**os.environ, "PATH": path}
    with (
        _shown(None if sys.stderr.isatty() else log) as output,
        tree("forkserver", stage_process.run, name, environment, output) as line,
    ):
        if output:
            output.close()  # the stage's processes hold it now
        return _ran(name, line, timeout)


def _ran(name: str, line: Connection, timeout: timedelta) -> bool:
    end = time.monotonic() + timeout.total_seconds()
    while not line.poll(1):
        if time.monotonic() > end:
            raise TemporaryError(f"{name}: took longer than {timeout}")
    match [*received(line)]:
        case [bool(ran), *_]:
            return ran
        case [(error, lines), *_]:
            raise error(*lines)
        case [status]:
            raise failure(name, status)
    raise TemporaryError(f"{name}: its keeper was killed")


@contextmanager
def _shown(log: Log | None) -> Iterator[Connection | None]:
    """Yield what the stage writes to, if its lines go to a log."""
    if not log:
        yield None
        return
    reader, writer = Pipe(duplex=False)
    thread = Thread(target=_log_lines, args=(reader, log), daemon=True)
    thread.start()
    try:
        yield writer
    finally:
        writer.close()
        thread.join(LAST_SECONDS)


def _log_lines(reader: Connection, log: Log) -> None:
    with reader, open(os.dup(reader.fileno()), errors="replace", newline="\n") as lines:
        for line in lines:
            last = line.rstrip("\r\n").rpartition("\r")[2]  # if the line was redrawn
            log(Text.from_ansi(last).plain)
