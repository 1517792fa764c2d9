"""Run units in child processes. A worker that dies is replaced, and its unit runs again.

`ProcessPoolExecutor` is no substitute: a broken pool tells neither the unit nor the exit status of
the worker that died, it cannot end its workers early, and its threads run while it forks.
"""

import gc
import multiprocessing
import os
import pickle
import signal
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkContext, SpawnContext
from multiprocessing.process import BaseProcess
from traceback import format_exc
from typing import Any, NamedTuple

import torch

from citer.executors.base import I, Job, R, Unit, count_death, noted, when_closed
from citer.progress import Advance

FORK, SPAWN = multiprocessing.get_context("fork"), multiprocessing.get_context("spawn")
CPU = "cpu"


@dataclass(frozen=True)
class Forked:
    """Runs units in forked, single-threaded processes, which share the models loaded here."""

    workers: int
    remote = False

    def run(self, job: Job[I, R], units: Sequence[Unit[I]], advance: Advance) -> Iterator[R]:
        workers = [_Worker(FORK, CPU, job) for _ in range(self.workers)]
        try:
            yield from _run(workers, None, units, advance)
        finally:
            for worker in workers:
                worker.end()


class Spawned:
    """Runs units in one process for each of `devices`: GPUs as CUDA names them, or `CPU`.

    A process loads the models of a job once, and stays for the next `run`. None outlives this
    process.
    """

    remote = True

    def __init__(self, devices: Sequence[str]) -> None:
        self.devices = devices
        self._workers = [_Worker(SPAWN, device) for device in devices]
        self._job: object = None
        self._pickled = b""

    def run(self, job: Job[I, R], units: Sequence[Unit[I]], advance: Advance) -> Iterator[R]:
        if job is not self._job:
            self._job, self._pickled = job, pickle.dumps(job)
        yield from _run(self._workers, self._pickled, units, advance)


READY = "ready"  # the first message of a child: it waits for a unit


class _Result(NamedTuple):
    """The last message about a unit. With a `reason`, the child died instead of sending it."""

    content: Any
    reason: str = ""


class _Worker:
    """A place for a child process. It runs one unit at a time, with the progress `done`."""

    unit: Unit[Any]
    pipe: Connection

    def __init__(
        self, context: ForkContext | SpawnContext, device: str, job: Job[Any, Any] | None = None
    ) -> None:
        self._context = context
        self._shared = device, job
        self._child: BaseProcess | None = None

    def take(self, unit: Unit[Any], job: bytes | None) -> None:
        """Run a unit in the child that there is, or start one. `job` is pickled, if not shared."""
        self.unit, self._job, self.done = unit, job, 0.0
        if self._child and self._child.is_alive():
            self._send()
            return
        self.end()  # a new child says when it is ready for the unit, because sending may block
        self.pipe, inner = self._context.Pipe()
        self._child = self._context.Process(target=_serve, args=(inner, *self._shared), daemon=True)
        self._child.start()
        inner.close()  # now only the child holds it: the pipe closes when the child ends
        self._sent: bytes | None = None

    def _send(self) -> None:
        with suppress(OSError):  # it died; `receive` will say so
            self.pipe.send((None if self._job is self._sent else self._job, self.unit))
        self._sent = self._job

    def receive(self, advance: Advance) -> _Result | None:
        """Read a message. Return None if the unit goes on. Raises the exception of a job."""
        try:
            message = self.pipe.recv()
        except (EOFError, OSError):
            return self._death()
        if message == READY:
            self._send()
        elif isinstance(message, Exception):
            raise message
        elif isinstance(message, _Result):
            return message
        else:
            self.done += message
            advance(message)
        return None

    def _death(self) -> _Result:
        assert self._child
        self._child.join()
        status = self._child.exitcode
        killed = " (SIGKILL), as Linux does if memory runs out" if status == -signal.SIGKILL else ""
        return _Result(None, f"exit status {status}{killed}")

    def end(self) -> None:
        if self._child:
            self._child.kill()
            self._child.join()
            self.pipe.close()
        self._child = None


def _run(
    workers: Sequence[_Worker], job: bytes | None, units: Sequence[Unit[Any]], advance: Advance
) -> Iterator[Any]:
    waiting, deaths = deque(units), Counter[str]()
    free, busy = deque(workers), dict[Connection, _Worker]()
    try:
        while waiting or busy:
            while waiting and free:
                worker = free.popleft()
                worker.take(waiting.popleft(), job)
                busy[worker.pipe] = worker
            ready = wait([*busy])
            for worker in [busy[pipe] for pipe in busy if pipe in ready]:
                if (message := worker.receive(advance)) is None:
                    continue
                del busy[worker.pipe]
                free.append(worker)
                if not message.reason:
                    yield message.content
                    continue
                count_death(deaths, worker.unit, message.reason)
                advance(-worker.done)
                waiting.append(worker.unit)
    finally:
        for worker in busy.values():
            worker.end()


def _serve(pipe: Connection, device: str, job: Job[Any, Any] | None) -> None:
    """Run units until the parent ends this process. A pickled job replaces the one before."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles ^C
    parent = multiprocessing.parent_process()
    assert parent
    when_closed(parent.sentinel, partial(os.kill, os.getpid(), signal.SIGKILL))
    if device != CPU:
        os.environ["CUDA_VISIBLE_DEVICES"] = device  # before CUDA starts
    torch.set_num_threads(1)  # OpenMP's threads do not survive a fork; results depend on the number
    gc.freeze()  # collection writes to pages shared with the parent, and a write copies the page
    pipe.send(READY)
    with suppress(EOFError):  # the parent needs no more workers
        _answer(pipe, job)


def _answer(pipe: Connection, job: Job[Any, Any] | None) -> None:
    """Send the progress and the result or the exception of each unit."""
    while True:
        pickled, unit = pipe.recv()
        try:
            with noted(unit):
                job = pickle.loads(pickled) if pickled else job  # nothing holds the one before
                assert job
                result = _Result(job(unit.inputs, advance=pipe.send))
            pipe.send(result)
        except Exception as error:
            pipe.send(_portable(error))


def _portable(error: Exception) -> Exception:
    """Note the traceback. Raised instead is an error with its text, if pickle cannot rebuild it."""
    said = format_exc()
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # of pickle, or of the error's own class
        error = RuntimeError(f"{type(error).__name__}: {error}")
    error.add_note(said)
    return error
