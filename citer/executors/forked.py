"""Run units in forked processes, which share the models that this process has loaded."""

import gc
import multiprocessing
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection

from citer.executors.base import I, Job, R
from citer.executors.pool import Pool, Worker, serve

FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Forked(Pool):
    """Runs each unit in a forked, single-threaded process."""

    workers: int
    remote = False

    def _worker(self, place: int, job: Job[I, R]) -> Worker:
        return Worker(FORK, place, partial(_serve, job))

    def _release(self, worker: Worker) -> None:
        worker.end()


def _serve(job: Job[I, R], pipe: Connection) -> None:
    gc.freeze()  # collection writes to pages shared with the parent, and a write copies the page
    serve(pipe, job)
