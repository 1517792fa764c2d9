"""Jobs for actors, which import them by name."""

import os
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from citer.errors import InputError
from citer.executors.base import Job
from citer.progress import Advance


class Place(NamedTuple):
    """Where a unit ran."""

    item: int
    pid: int
    on_main_thread: bool
    folder: str


def place(item: int, *, advance: Advance) -> Place:
    advance(1)
    on_main = threading.current_thread() is threading.main_thread()
    return Place(item, os.getpid(), on_main, os.getcwd())


def refuse_5(item: int, *, advance: Advance) -> int:
    if item == 5:
        raise InputError("item 5: bad, expected good")
    return item


def die_at_5(item: int, *, advance: Advance) -> int:
    if item == 5:
        _die()
    return item


def die_once(folder: Path, *, advance: Advance) -> None:
    """Advance by 1 and die. Advance by 5 if that has happened before."""
    died = folder / "died"
    if not died.exists():
        advance(1)
        died.touch()
        _die()
    advance(5)


def meet(folder: Path, *, advance: Advance) -> int:
    """Wait until another process runs a unit of this job at the same time."""
    (folder / str(os.getpid())).touch()
    while len(list(folder.iterdir())) < 2:
        time.sleep(0.05)
    return os.getpid()


def sleep(folder: Path, *, advance: Advance) -> None:
    (folder / str(os.getpid())).touch()
    time.sleep(600)


@dataclass(frozen=True)
class Deadly:
    """Kills its process at the first progress of a unit, `times` times."""

    job: Job[Any, Any]
    folder: Path
    times: int

    def __call__(self, inputs: Any, /, *, advance: Advance) -> Any:
        for death in map(str, range(self.times)):
            try:
                (self.folder / death).touch(exist_ok=False)
            except FileExistsError:
                continue
            advance = _die
            break
        return self.job(inputs, advance=advance)


def _die(count: float = 0) -> None:
    os.kill(os.getpid(), signal.SIGKILL)
