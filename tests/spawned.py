"""Executors whose workers receive only pickled data from the parent."""

import pickle
from collections.abc import Iterator, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from random import Random
from typing import Any

from citer.executor import I, InLine, Job, R, Unit
from citer.progress import Advance

SPAWN = get_context("spawn")
RESULT = "result"


class Pickling(InLine):
    """Runs pickled copies of the units in this process, in reverse order."""

    def run(self, job: Job[I, R], units: Sequence[Unit[I]], advance: Advance) -> Iterator[R]:
        job, units = pickle.loads(pickle.dumps((job, units)))
        yield from super().run(job, units[::-1], advance)


class Spawned:
    """Runs units in fresh Python processes, in shuffled order.

    It can kill a worker during a unit. Another worker then runs the unit again.
    """

    def __init__(self, workers: int) -> None:
        self.order = Random(0)
        self.processes: dict[Connection, BaseProcess] = {}
        for _ in range(workers):
            parent_end, child_end = SPAWN.Pipe()
            process = SPAWN.Process(target=_serve, args=(child_end,), daemon=True)
            process.start()
            child_end.close()
            self.processes[parent_end] = process
        self.to_kill = 0
        self.redone: list[str] = []

    @property
    def workers(self) -> int:
        return len(self.processes)

    def run(self, job: Job[I, R], units: Sequence[Unit[I]], advance: Advance) -> Iterator[R]:
        waiting = self.order.sample(units, len(units))
        pickled = pickle.dumps(job)
        running: dict[Connection, Unit[I]] = {}
        while waiting or running:
            for pipe in [idle for idle in self.processes if idle not in running][: len(waiting)]:
                running[pipe] = waiting.pop()
                pipe.send((pickled, pickle.dumps(running[pipe].inputs)))
            ready = wait(list(running))
            for pipe in [busy for busy in running if busy in ready]:
                kind, content = pipe.recv()
                if kind == RESULT:
                    del running[pipe]
                    yield content
                elif self.to_kill:
                    waiting.append(self._kill(pipe, running.pop(pipe)))
                else:
                    advance(content)

    def _kill(self, pipe: Connection, unit: Unit[I]) -> Unit[I]:
        self.to_kill -= 1
        self.redone.append(unit.name)
        process = self.processes.pop(pipe)
        process.kill()
        process.join()
        return unit

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.join()


def _serve(pipe: Connection) -> None:
    import torch

    torch.set_num_threads(1)
    jobs: dict[bytes, Any] = {}
    while True:
        pickled, inputs = pipe.recv()
        if pickled not in jobs:
            jobs = {pickled: pickle.loads(pickled)}  # loads the models from their folders
        advance = lambda count: pipe.send(("progress", count))  # noqa: E731
        pipe.send((RESULT, jobs[pickled](pickle.loads(inputs), advance=advance)))
