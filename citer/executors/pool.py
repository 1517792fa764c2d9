"""Run units in child processes. A worker that dies is replaced, and its unit runs again."""

import os
import pickle
import signal
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkContext, SpawnContext
from traceback import format_exc
from typing import Any, NamedTuple

import torch

from citer.executors.base import I, Job, R, Unit, noted
from citer.executors.deaths import Deaths
from citer.executors.lifeline import when_closed
from citer.progress import Advance


class Ready(NamedTuple):
    """The first message of a worker: it waits for a unit."""


class Result(NamedTuple):
    """The last message about a unit."""

    content: Any


class Death(NamedTuple):
    """The parent receives this instead of a message if the worker died."""

    reason: str


class Worker:
    """A child process that runs `serve`, and the pipe to it. It has one unit at a time.

    `job` is the pickled job of its units, or None if the child has it already.
    """

    unit: Unit[Any]
    job: bytes | None = None

    def __init__(
        self, context: ForkContext | SpawnContext, place: int, serve: Callable[[Connection], None]
    ) -> None:
        self.place = place
        self.pipe, inner = context.Pipe()
        self._process = context.Process(target=serve, args=(inner,), daemon=True)
        self._process.start()
        inner.close()  # now only the child holds it: the pipe closes when the child ends
        self._is_ready = False
        self._sent: bytes | None = None

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive()

    def take(self, unit: Unit[Any]) -> None:
        self.unit = unit
        if self._is_ready:
            self._send()

    def receive(self) -> Any:
        """Return the next message about the unit, or None if there is none yet."""
        try:
            message = self.pipe.recv()
        except (EOFError, OSError):
            self._process.join()
            status = self._process.exitcode
            hint = (
                " (SIGKILL), as Linux does if memory runs out" if status == -signal.SIGKILL else ""
            )
            return Death(f"exit status {status}{hint}")
        if isinstance(message, Ready):
            self._is_ready = True
            return self._send()
        return message

    def _send(self) -> None:
        job = None if self.job is self._sent else self.job
        with suppress(OSError):  # it died; `receive` will say so
            self.pipe.send((job, self.unit))
        self._sent = self.job

    def end(self) -> None:
        self._process.kill()
        self._process.join()
        self.pipe.close()


class Pool(ABC):
    """Runs units in as many child processes as there are `workers`."""

    workers: int

    @abstractmethod
    def _worker(self, place: int, job: Job[I, R]) -> Worker:
        """Return an idle worker of this place, from 0 to `workers - 1`."""

    @abstractmethod
    def _release(self, worker: Worker) -> None:
        """Keep or end a worker whose unit is done."""

    def run(self, job: Job[I, R], units: Sequence[Unit[I]], advance: Advance) -> Iterator[R]:
        waiting, deaths = deque(units), Deaths(advance)
        places, busy = deque(range(self.workers)), dict[Connection, Worker]()
        try:
            while waiting or busy:
                while waiting and places:
                    worker = self._worker(places.popleft(), job)
                    worker.take(waiting.popleft())
                    busy[worker.pipe] = worker
                for worker, message in _messages(busy):
                    if not isinstance(message, Result | Death):
                        deaths.advance(worker.unit, message)
                        continue
                    places.append(busy.pop(worker.pipe).place)
                    if isinstance(message, Death):
                        worker.end()
                        deaths.died(worker.unit, message.reason)
                        waiting.append(worker.unit)
                    else:
                        self._release(worker)
                        yield message.content
        finally:
            for worker in busy.values():
                worker.end()


def _messages(busy: Mapping[Connection, Worker]) -> Iterator[tuple[Worker, Any]]:
    """Wait for messages and yield them. Raises the exception of a job."""
    ready = wait(list(busy))
    for worker in [busy[pipe] for pipe in busy if pipe in ready]:
        message = worker.receive()
        if isinstance(message, Exception):
            raise message
        if message is not None:
            yield worker, message


def serve(pipe: Connection, job: Job[Any, Any] | None = None) -> None:
    """Run units until the parent ends this process. A pickled job replaces the one before."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles ^C
    parent = parent_process()
    assert parent
    when_closed(parent.sentinel, partial(os.kill, os.getpid(), signal.SIGKILL))
    torch.set_num_threads(1)  # OpenMP's threads do not survive a fork; results depend on the number
    pipe.send(Ready())
    while True:
        try:
            pickled, unit = pipe.recv()
        except EOFError:  # the parent needs no more workers
            return
        try:
            with noted(unit):
                job = pickle.loads(pickled) if pickled else job
                assert job
                result = Result(job(unit.inputs, advance=pipe.send))
            pipe.send(result)
        except Exception as error:
            error.add_note(format_exc())
            pipe.send(error)
