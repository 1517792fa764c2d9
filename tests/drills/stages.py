"""A single stage in a process of its own, which is killed at a random moment of its own time."""

import json
import os
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

import psutil
import torch
from ruamel.yaml import YAML

from citer.cli.main import call
from citer.report import charts
from citer.storage.tables import remove
from tests.drills.files import Files, contents
from tests.drills.project import ROOT
from tests.drills.project import STAGES as ALL

PATIENCE_SECONDS = 300
FORK = get_context("fork")  # a fresh process would import torch and transformers for seconds
STAGES = tuple(each for each in ALL if each[0] not in {"prepare", "probe", "finetune"})
FORKING = {"references", "rivals", "label", "evaluate", "transcribe"}  # stages that fork workers


@dataclass(frozen=True)
class StageKill:
    """Kill the `victim` of a stage: itself, one of its workers, or all at once."""

    command: tuple[str, ...]
    victim: str
    share: float  # of the seconds that an undisturbed stage takes
    choice: float  # of a worker


def draw(count: int, seed: int) -> list[StageKill]:
    random = Random(seed)
    return [_draw(random, STAGES[number % len(STAGES)]) for number in range(count)]


def _draw(random: Random, command: tuple[str, ...]) -> StageKill:
    victims = ("stage", "worker", "all") if command[0] in FORKING else ("stage",)
    return StageKill(command, random.choice(victims), random.random(), random.random())


def outputs(command: Sequence[str]) -> list[Path]:
    stage = YAML(typ="safe").load(ROOT / "dvc.yaml")["stages"][command[0]]
    outs = stage.get("do", stage)["outs"]
    names = (out if isinstance(out, str) else next(iter(out)) for out in outs)
    return [Path(name.replace("${key}", command[-1])) for name in names]


@dataclass(frozen=True)
class Finished:
    """What an undisturbed stage leaves, and its seconds."""

    files: Files
    seconds: float


class Undisturbed:
    """A project in which every stage has run. `finished` runs a stage once more, undisturbed."""

    def __init__(self, project: Path, folder: Path) -> None:
        self._project, self._folder = project, folder
        self._by_stage: dict[tuple[str, ...], Finished] = {}

    def before(self, command: tuple[str, ...], copy: Path) -> Path:
        """Copy the project, without what DVC removes before it runs the stage."""
        shutil.copytree(self._project, copy, dirs_exist_ok=True)
        for path in outputs(command):
            remove(copy / path)
        return copy

    def sizes(self, command: tuple[str, ...]) -> list[int]:
        """Return the sizes of the stage's files, in bytes."""
        made = (self._project / path for path in outputs(command))
        files = (file for path in made for file in (path, *path.rglob("*")) if file.is_file())
        return [file.stat().st_size for file in files]

    def finished(self, command: tuple[str, ...]) -> Finished:
        if command not in self._by_stage:
            folder = self._folder / "".join(command)
            run = StageRun(command, self.before(command, folder), self._folder / "log")
            assert run.status() == 0, run.log.read_text()
            seconds = run.seconds
            self._by_stage[command] = Finished(contents(folder), seconds)
            shutil.rmtree(folder)
        return self._by_stage[command]


class StageRun:
    """A stage as a process in a session of its own. Its lines are written to `log`."""

    def __init__(
        self,
        command: Sequence[str],
        project: Path,
        log: Path,
        trouble: Callable[[], object] = lambda: None,  # called by the process before it begins
    ) -> None:
        self.command, self.project, self.log = command, project, log
        self.begun = time.monotonic()
        self._process = FORK.Process(target=_run, args=(command, project, log, trouble))
        self._process.start()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.begun

    def status(self) -> int | None:
        """Wait for the stage. Return its exit status, negative after a signal."""
        self._process.join(PATIENCE_SECONDS)
        return self._process.exitcode

    def ends_within(self, seconds: float) -> bool:
        self._process.join(max(seconds - self.seconds, 0))
        return self._process.exitcode is not None

    def workers(self) -> list[psutil.Process]:
        with suppress(psutil.NoSuchProcess):
            return psutil.Process(self._process.pid).children(recursive=True)
        return []

    def kill(self, victim: str, choice: float) -> bool:
        """Kill the victim. Return False if there is none before the stage has ended."""
        while victim == "worker" and not self.workers():
            if self.ends_within(self.seconds + 0.002):
                return False
        workers, own = self.workers(), [psutil.Process(self._process.pid)]
        chosen = workers[int(choice * len(workers)) :][:1]
        by_victim = {"stage": own, "worker": chosen, "all": [*own, *workers]}
        for process in by_victim[victim]:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        return bool(by_victim[victim])

    def orphans(self) -> list[psutil.Process]:
        """Wait until no process of the stage is left. Return those that do not end."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (left := [*self._session()]) and time.monotonic() < deadline:
            time.sleep(0.02)
        return left

    def _session(self) -> Iterator[psutil.Process]:
        for process in psutil.process_iter():
            with suppress(psutil.Error, ProcessLookupError):
                ended = process.status() == psutil.STATUS_ZOMBIE
                if os.getsid(process.pid) == self._process.pid and not ended:
                    yield process


class Converter:
    """`vl_convert` in a process of its own: its threads do not survive a fork of this process."""

    def vegalite_to_svg(self, chart: Mapping[str, Any]) -> str:
        return self._call("vegalite_to_svg", chart).decode()

    def svg_to_png(self, svg: str, scale: float) -> bytes:
        return self._call("svg_to_png", svg, scale)

    def _call(self, function: str, *arguments: object) -> bytes:
        code = (
            "import json, sys, vl_convert; "
            f"made = vl_convert.{function}(*json.load(sys.stdin)); "
            "sys.stdout.buffer.write(made.encode() if isinstance(made, str) else made)"
        )
        given = json.dumps(arguments).encode()
        command = [sys.executable, "-c", code]
        return subprocess.run(command, input=given, check=True, stdout=subprocess.PIPE).stdout


def _run(command: Sequence[str], project: Path, log: Path, trouble: Callable[[], object]) -> None:
    os.setsid()
    charts.vl_convert = Converter()  # type: ignore[assignment]
    trouble()
    os.chdir(project)
    torch.set_num_threads(2)  # small models are then run by forked workers
    status = 1
    with log.open("a", buffering=1) as file, redirect_stdout(file), redirect_stderr(file):
        try:
            status = call(command)
        except Exception:
            traceback.print_exc()
    os._exit(status)  # past pytest's own exit
