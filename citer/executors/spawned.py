"""Run units in fresh processes, one for each device."""

import multiprocessing
import os
import pickle
from collections.abc import Sequence
from functools import partial
from multiprocessing.connection import Connection

from citer.executors.base import I, Job, R
from citer.executors.pool import Pool, Worker, serve

SPAWN = multiprocessing.get_context("spawn")
CPU = "cpu"


class Spawned(Pool):
    """Runs units in one process for each of `devices`: GPUs as CUDA names them, or `CPU`.

    A process loads the models of a job once, and stays for the next `run`. None outlives this
    process.
    """

    remote = True

    def __init__(self, devices: Sequence[str]) -> None:
        self.workers = len(devices)
        self.devices = devices
        self._idle: dict[int, Worker] = {}
        self._job: object = None
        self._pickled = b""

    def _worker(self, place: int, job: Job[I, R]) -> Worker:
        if job is not self._job:
            self._job, self._pickled = job, pickle.dumps(job)
        start = partial(Worker, SPAWN, place, partial(_serve, self.devices[place]))
        worker = self._idle.pop(place, None)
        if worker is None or not worker.is_alive:  # no unit is to blame for a death between two
            worker = start()
        worker.job = self._pickled
        return worker

    def _release(self, worker: Worker) -> None:
        self._idle[worker.place] = worker


def _serve(device: str, pipe: Connection) -> None:
    if device != CPU:
        os.environ["CUDA_VISIBLE_DEVICES"] = device  # before CUDA starts
    serve(pipe)
