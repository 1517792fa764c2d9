"""Run the units of a stage, in this process or in forked ones.

A unit is a part of a stage's inputs. A job is a function of a unit's inputs; it writes a file or
returns a picklable result. Units and jobs can be pickled: an `Engine` or a `LanguageModel` is
pickled as its folder and settings. A new kind of executor, such as a process per GPU or a cluster,
is therefore one class, which sends them to its workers.
"""

import gc
import multiprocessing
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from pathlib import Path
from traceback import format_exc
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import pyarrow as pa
import torch

from citer.io import write_table
from citer.lifeline import when_closed
from citer.progress import Advance

I = TypeVar("I")  # noqa: E741
R = TypeVar("R")
I_contra = TypeVar("I_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)

FORK = multiprocessing.get_context("fork")  # workers share the loaded models


class Unit(NamedTuple, Generic[I]):
    """A part of a stage's inputs. Errors give its name."""

    name: str
    inputs: I


class Job(Protocol[I_contra, R_co]):
    """A function of a unit's inputs. Equal inputs give equal results."""

    def __call__(self, inputs: I_contra, /, *, advance: Advance) -> R_co: ...


class Executor(Protocol):
    """Runs units, in this process or in others."""

    @property
    def workers(self) -> int:
        """The number of units that run at the same time."""

    def run(self, job: Job[I, R], units: Sequence[Unit[I]], advance: Advance) -> Iterator[R]:
        """Yield the result of each unit once, in any order.

        If a worker dies, its unit may run again, but never twice at the same time. `advance` gets
        the progress of all workers. Raises the job's exception, with the unit's name as a note.
        No worker outlives this iterator or the process that started it.
        """


class InLine:
    """Runs units one after another in this process."""

    workers = 1

    def run(self, job: Job[I, R], units: Sequence[Unit[I]], advance: Advance) -> Iterator[R]:
        for unit in units:
            with _noted(unit):
                result = job(unit.inputs, advance=advance)
            yield result


@dataclass(frozen=True)
class Forked:
    """Runs each unit in a forked, single-threaded process."""

    workers: int

    def run(self, job: Job[I, R], units: Sequence[Unit[I]], advance: Advance) -> Iterator[R]:
        waiting = iter(units)
        running: dict[Connection, _Worker] = {}
        try:
            while True:
                for unit in islice(waiting, self.workers - len(running)):
                    worker = _start(job, unit)
                    running[worker.receiver] = worker
                if not running:
                    return
                ready = wait(list(running))
                for receiver in [each for each in running if each in ready]:
                    message = running[receiver].receive()
                    if isinstance(message, _Result):
                        running.pop(receiver).end()
                        yield message.content
                    else:
                        advance(message)
        finally:
            for worker in running.values():
                worker.end()


def executor_for(small: bool) -> InLine | Forked:
    """Fork single-threaded workers if models are small.

    `small`: forwards too small to multithread (`Pair.is_small`).
    """
    threads = torch.get_num_threads()
    return Forked(threads) if small and threads > 1 else InLine()


def deal(items: Sequence[I], workers: int) -> list[Sequence[I]]:
    """Deal items in turn to as many units as there are workers. No unit is empty."""
    return [items[n::workers] for n in range(min(workers, len(items)))]


def write_tables(
    executor: Executor,
    job: Job[I, pa.Table],
    inputs: Mapping[Path, I],
    schema: pa.Schema,
    metadata: Mapping[str, Any],
    advance: Advance,
) -> None:
    """Run `job` on the inputs of each path, and write the table that it returns to the path.

    A file is written completely or not at all.
    """
    to_file = _ToFile(job, schema, dict(metadata))
    units = [Unit(str(path), (path, each)) for path, each in inputs.items()]
    for _ in executor.run(to_file, units, advance):
        pass


@dataclass(frozen=True)
class _ToFile(Generic[I]):
    """A job that writes the table which another job returns."""

    job: Job[I, pa.Table]
    schema: pa.Schema
    metadata: dict[str, Any]

    def __call__(self, inputs: tuple[Path, I], /, *, advance: Advance) -> None:
        path, content = inputs
        write_table(path, self.job(content, advance=advance), self.schema, self.metadata)


@contextmanager
def _noted(unit: Unit[Any]) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        error.add_note(f"while running {unit.name}")
        raise


class _Result(NamedTuple):
    """The last message of a worker that succeeded."""

    content: Any


class _Worker(NamedTuple):
    """A child process, and the pipe that carries its messages."""

    unit: Unit[Any]
    receiver: Connection
    process: ForkProcess

    def receive(self) -> _Result | float:
        """Return the result, or progress. Raises the job's exception.

        Raises RuntimeError if the child died.
        """
        try:
            message = self.receiver.recv()
        except EOFError:
            self.process.join()
            status = self.process.exitcode
            raise RuntimeError(
                f"{self.unit.name}: its process ended with exit status {status}"
            ) from None
        if isinstance(message, Exception):
            raise message
        return message

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.receiver.close()


def _start(job: Job[I, R], unit: Unit[I]) -> _Worker:
    receiver, sender = FORK.Pipe(duplex=False)
    process = FORK.Process(target=_serve, args=(job, unit, sender), daemon=True)
    process.start()
    sender.close()  # now only the child holds it: the pipe closes when the child ends
    return _Worker(unit, receiver, process)


def _serve(job: Job[I, R], unit: Unit[I], sender: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles ^C
    parent = multiprocessing.parent_process()
    assert parent
    when_closed(parent.sentinel, partial(os.kill, os.getpid(), signal.SIGKILL))
    torch.set_num_threads(1)  # the threads of OpenMP do not survive a fork
    gc.freeze()  # collection writes to pages shared with the parent, and a write copies the page
    try:
        with _noted(unit):
            sender.send(_Result(job(unit.inputs, advance=sender.send)))
    except Exception as error:
        error.add_note(format_exc())
        sender.send(error)
    os._exit(0)  # without flushing streams: another thread may have held their locks at the fork
