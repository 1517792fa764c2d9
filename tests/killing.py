"""An executor whose workers are killed in the middle of their units."""

import multiprocessing
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from citer.executors.base import Executor, I, Job, R, Unit
from citer.progress import Advance


@dataclass
class Killing:
    """Kills all workers of another executor by SIGKILL at the first progress of each `run`."""

    executor: Executor
    killed: int = 0

    @property
    def remote(self) -> bool:
        return self.executor.remote

    def run(self, job: Job[I, R], units: Sequence[Unit[I]], advance: Advance) -> Iterator[R]:
        is_first = True

        def kill_first(count: float) -> None:
            nonlocal is_first
            if is_first:
                self._kill()
            is_first = False
            advance(count)

        return self.executor.run(job, units, kill_first)

    def _kill(self) -> None:
        for process in multiprocessing.active_children():
            process.kill()
            process.join()
            self.killed += 1


def end_workers() -> None:
    """End the workers that wait for another `run`."""
    for process in multiprocessing.active_children():
        process.kill()
        process.join()
