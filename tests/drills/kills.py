"""`citer run` in a tiny clone, killed at random moments, then run once more."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any
from uuid import uuid4

import psutil
from mlflow import MlflowClient
from ruamel.yaml import YAML

from flows.repair_dvc import RUNS, RWLOCK

BIN = Path(sys.executable).parent
MARK = "CITER_DRILL"  # every process of a run inherits it, even an orphan
PATIENCE_SECONDS = 900  # a run ends within this time, even on a busy machine
GONE_SECONDS = 60  # all processes end this long after `citer run`; above the keepers' grace
OWN = {".git", ".dvc", "mlruns"}  # their files differ from run to run


@dataclass(frozen=True)
class Kill:
    """When to kill, as `share` of an undisturbed run's seconds; `choice` of a living process."""

    share: float
    choice: float


@dataclass(frozen=True)
class Outcome:
    """The results of a run: DVC's digests of all stages, versions, MLflow's runs, files."""

    stages: dict[str, Any]
    versions: list[str]  # the digest of each router
    champion: str
    runs: list[str]  # what runs of MLflow are, of those that did not fail
    files: frozenset[str]


def draw(count: int, seed: int) -> list[Kill]:
    random = Random(seed)
    return [Kill(random.random(), random.random()) for _ in range(count)]


class Run:
    """A `citer run` in `folder`, with its own home and folder for temporary files."""

    def __init__(
        self, folder: Path, home: Path, env: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self.token, self.folder, self.home = uuid4().hex, folder, home
        self.log = home / "log"
        self.temporary = home / "tmp"
        self.temporary.mkdir(parents=True, exist_ok=True)
        ours = {MARK: self.token, "PREFECT_HOME": str(home / "prefect")}
        ours |= {"TMPDIR": str(self.temporary), "MLFLOW_TRACKING_URI": ""}
        self.begun = time.monotonic()
        with self.log.open("a") as log:
            command = [BIN / "citer", "run"]
            env = os.environ | ours | env
            self.cli = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log, env=env)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.begun

    def ends_within(self, seconds: float) -> bool:
        with suppress(subprocess.TimeoutExpired):
            self.cli.wait(max(seconds - self.seconds, 0))
            return True
        return False

    def processes(self) -> dict[str, psutil.Process]:
        """Return the living processes by their part in the run, from the top down."""
        by_part: dict[str | None, psutil.Process] = {}
        for process in self._marked():
            with suppress(psutil.Error):
                by_part[part(process)] = process
        return {part: by_part[part] for part in PARTS if part in by_part}

    def kill(self, choice: float) -> str:
        """Kill one of the living processes, or all at once; return the name of the part."""
        chosen = {name: [process] for name, process in self.processes().items()}
        chosen[ALL] = self._marked()
        name = [*chosen][int(choice * len(chosen))]
        for process in chosen[name]:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        return name

    def settle(self) -> list[str]:
        """Wait until all processes have ended. Kill any that remain; return their commands."""
        self.cli.wait(PATIENCE_SECONDS)
        deadline = time.monotonic() + GONE_SECONDS
        while (left := self._marked()) and time.monotonic() < deadline:
            time.sleep(0.1)
        commands = [" ".join(process.cmdline()) for process in left]
        for process in left:
            process.kill()
        return commands

    def _marked(self) -> list[psutil.Process]:
        return [process for process in psutil.process_iter() if _carries(process, self.token)]


HELD = CLI, OUTER = "citer run", "keeper of the run"
FORKED = FORK_SERVER, INNER, STAGE = "fork server", "keeper of a stage", "stage"
FLOW, SERVER, TRACKER, COMMAND = "flow", "server", "tracker", "command"
PARTS = (*HELD, FLOW, SERVER, TRACKER, *FORKED, COMMAND)
ALL = "all"


def part(process: psutil.Process) -> str | None:
    """Return the part that a process has in a run, if any."""
    command = process.cmdline()
    depth = sum(parent.cmdline() == command for parent in process.parents())  # in a line of forks
    match command[1:]:
        case [script, "run"] if Path(script).name == "citer":
            return HELD[depth]
        case [*_, "-c", script] if "multiprocessing.forkserver" in script:
            return FORKED[depth] if depth < len(FORKED) else None  # workers of a stage are deeper
        case [*_, "-c", script] if "multiprocessing.resource_tracker" in script:
            return TRACKER
        case ["-m", "flows", _]:
            return FLOW
        case ["-m", "uvicorn", *_]:
            return SERVER
        case ["6000"]:  # of `sleep`
            return COMMAND
    return None


def _carries(process: psutil.Process, token: str) -> bool:
    try:
        alive = process.status() != psutil.STATUS_ZOMBIE
        return alive and process.environ().get(MARK) == token
    except psutil.Error:
        return False


def outcome(folder: Path) -> Outcome:
    """Read the results of the run in `folder`."""
    stages = YAML(typ="safe").load(folder / "dvc.lock")["stages"]
    client = MlflowClient(f"sqlite:///{folder}/mlruns/mlflow.db")
    versions = client.search_model_versions("name = 'citer-router'")
    runs = {version.version: client.get_run(version.run_id) for version in versions}
    digests = {number: run.data.tags["digest"] for number, run in runs.items()}
    champion = client.get_model_version_by_alias("citer-router", "champion")
    experiment = client.get_experiment_by_name("citer")
    found = client.search_runs([experiment.experiment_id], "attributes.status != 'FAILED'")
    return Outcome(
        stages,
        sorted(digests.values()),
        digests[champion.version],
        sorted(f"{run.data.tags['kind']} {run.info.status}" for run in found),
        frozenset(_files(folder)),
    )


def _files(folder: Path) -> Iterator[str]:
    for file in folder.rglob("*"):
        place = file.relative_to(folder)
        if place.parts[0] not in OWN and "__pycache__" not in place.parts:
            yield place.as_posix()


def torn(folder: Path) -> list[str]:
    """List the kinds of DVC's files that a kill has left damaged."""
    table = folder / RWLOCK
    damaged = {
        "rwlock": table.exists() and "pid" in table.read_text(),
        "runs": any(not any(entry.iterdir()) for entry in (folder / RUNS).glob("*/*")),
    }
    return [name for name, is_torn in damaged.items() if is_torn]
