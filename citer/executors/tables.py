"""Choose who runs the units of a stage, and write the tables that they return."""

import os
from collections.abc import Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import torch

from citer.errors import InputError
from citer.executors.base import Executor, I, InLine, Job, Unit, WorkerParams
from citer.executors.processes import Forked, Spawned
from citer.progress import Advance
from citer.storage.tables import write_table


class Placed(Protocol):
    """A model or a pair, of which the weights need not be loaded."""

    @property
    def device(self) -> torch.device: ...

    @property
    def is_small(self) -> bool:
        """Whether forwards are too small to multithread, so that several processes are faster."""

    @property
    def fits_one_gpu(self) -> bool:
        """Whether all that is loaded here is on one GPU, so that each GPU can have a copy."""


def executor_for(placed: Placed, workers: WorkerParams | None = None) -> Executor:
    """Return a process for each visible GPU, forks for a small model on a CPU, or this process.

    Raises InputError if Ray is not installed, or if no cluster answers.
    """
    if workers and workers.executor == "ray":
        if find_spec("ray") is None:
            raise InputError("workers.executor: 'ray' is not installed: pip install 'citer[ray]'")
        from citer.executors.actors import connect

        return connect("GPU" if placed.device.type == "cuda" else "CPU")
    if gpus := _gpus(placed):
        return Spawned(gpus)
    threads = torch.get_num_threads()
    return Forked(threads) if placed.is_small and threads > 1 else InLine()


def _gpus(placed: Placed) -> list[str]:
    """Return the names of the GPUs that get a process each, or none if this process does the work.

    CUDA_VISIBLE_DEVICES, if set, leaves a part of the machine's GPUs to this process.
    """
    several = placed.device.type == "cuda" and placed.fits_one_gpu
    count = torch.cuda.device_count() if several else 0
    if count < 2:
        return []
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    return listed.split(",")[:count] if listed else [str(n) for n in range(count)]


def write_tables(
    executor: Executor,
    job: Job[I, pa.Table],
    inputs: Mapping[Path, I],
    schema: pa.Schema,
    metadata: Mapping[str, Any],
    advance: Advance,
) -> None:
    """Run `job` on the inputs of each path, and write the table that it returns to the path."""
    to_file = partial(_to_file, job, schema, dict(metadata))
    units = [Unit(str(path), (path, each)) for path, each in inputs.items()]
    for _ in executor.run(to_file, units, advance):
        pass


def _to_file(
    job: Job[I, pa.Table],
    schema: pa.Schema,
    metadata: dict[str, Any],
    inputs: tuple[Path, I],
    advance: Advance,
) -> None:
    """Write the table that another job returns: a job of its own."""
    path, content = inputs
    write_table(path, job(content, advance=advance), schema, metadata)
