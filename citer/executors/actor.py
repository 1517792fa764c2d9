"""What runs in Ray actors."""

import os
import pickle
import socket
import time
from pathlib import Path
from traceback import format_exc
from typing import Any, NamedTuple

import ray
from ray.actor import ActorHandle

from citer.errors import InputError
from citer.executors.base import Job, Unit, noted

SECONDS = 1.0  # between two reports of progress


class Ended(NamedTuple):
    """The result or the exception of a unit, and all of its progress."""

    result: Any
    error: Exception | None
    done: float


class Board:
    """Holds the progress of each attempt at a unit."""

    def __init__(self) -> None:
        self.done: dict[int, float] = {}

    def write(self, attempt: int, done: float) -> None:
        self.done[attempt] = done

    def read(self) -> dict[int, float]:
        return self.done


class Actor:
    """Runs units, and writes their progress to a board.

    An actor that answered questions about its progress would not run units on the main thread. Only
    there can a slow comparison of two answers be ended (`citer.data.tasks.math.values`).
    """

    def __init__(self, folder: Path, board: ActorHandle) -> None:
        self.folder = folder
        self.board = board
        self.reference: ray.ObjectRef | None = None
        self.job: Job[Any, Any] | None = None

    def ready(self) -> None:
        """Raises InputError if the project's folder is not on this machine."""
        if not self.folder.is_dir():
            expected = "expected the project's folder, under the same path on every machine"
            raise InputError(f"{self.folder}: not on {socket.gethostname()}: {expected}")
        os.chdir(self.folder)

    def run(self, job: list[ray.ObjectRef], unit: Unit[Any], attempt: int) -> Ended:
        """Run a unit. The pickled job is in a list, because Ray would fetch a bare reference."""
        report = _Report(self.board, attempt)
        try:
            with noted(unit):
                result = self._loaded(job[0])(unit.inputs, advance=report.advance)
        except Exception as error:  # returned, because Ray would raise another type
            error.add_note(format_exc())
            return Ended(None, error, report.done)
        return Ended(result, None, report.done)

    def _loaded(self, reference: ray.ObjectRef) -> Job[Any, Any]:
        """Return the job. Unpickling it loads its models."""
        if not self.job or reference != self.reference:
            import torch

            torch.set_num_threads(1)  # results depend on the number
            self.job = pickle.loads(ray.get(reference))
            self.reference = reference
        return self.job


class _Report:
    """Counts the progress of an attempt."""

    def __init__(self, board: ActorHandle, attempt: int) -> None:
        self.board = board
        self.attempt = attempt
        self.done = 0.0
        self.written = time.monotonic()

    def advance(self, count: float) -> None:
        self.done += count
        if (now := time.monotonic()) > self.written + SECONDS:
            self.board.write.remote(self.attempt, self.done)
            self.written = now
