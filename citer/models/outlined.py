"""Who runs the units of a stage, and models whose weights only worker processes load."""

import os
from importlib.util import find_spec

import torch

from citer.config.pair import PairParams
from citer.errors import InputError, with_extra
from citer.executors.base import Executor, InLine, WorkerParams
from citer.executors.processes import Forked, Spawned
from citer.models.folder import Carded, ModelFolder, PairFolder
from citer.models.pair import LanguageModel, Pair, load_model, load_pair


def open_pair(
    folders: PairFolder, params: PairParams, workers: WorkerParams
) -> tuple[Pair, Executor]:
    """Return a pair and the executor that runs its jobs. Loads the weights if this process runs it.

    Raises InputError if a device does not exist.
    """
    pair = load_pair(folders, params, weights=False)
    executor = executor_for(pair, workers)
    if executor.remote:
        return pair, executor
    served = None if isinstance(pair.llm, LanguageModel) else pair.llm
    return load_pair(folders, params, served), executor


def open_model(
    name: str, folder: ModelFolder, params: PairParams, workers: WorkerParams
) -> tuple[LanguageModel | Carded, Executor]:
    """Do the same for one model. One that a server runs gets its requests from this process."""
    if name == "llm" and (served := folder.reach(params.dtype)):
        return served, InLine()
    model = load_model(name, folder, params, weights=False)
    executor = executor_for(model, workers)
    return (model if executor.remote else load_model(name, folder, params)), executor


def executor_for(placed: Pair | LanguageModel, workers: WorkerParams) -> Executor:
    """Return a process for each visible GPU, forks for a small model on a CPU, or this process.

    Raises InputError if Ray is not installed, if no cluster answers, or if an actor, which has one
    GPU, would not hold the pair.
    """
    if workers.executor == "ray":
        if find_spec("ray") is None:
            raise InputError(f"workers.executor: 'ray' is not installed; {with_extra('ray')}")
        llm = getattr(placed, "llm", placed)  # one behind a server has no device
        if placed.device.type == "cuda" and not getattr(llm, "fits_one_gpu", True):
            expected = "expected local, as pair.llm_device_map divides the LLM among GPUs"
            raise InputError(f"workers.executor: ray: {expected}")
        from citer.executors.actors import connect

        return connect("GPU" if placed.device.type == "cuda" else "CPU")
    if gpus := _gpus(placed):
        return Spawned(gpus)
    threads = torch.get_num_threads()
    return Forked(threads) if placed.is_small and threads > 1 else InLine()


def _gpus(placed: Pair | LanguageModel) -> list[str]:
    """Return the names of the GPUs that get a process each, or none if this process does the work.

    CUDA_VISIBLE_DEVICES, if set, leaves a part of the machine's GPUs to this process.
    """
    several = placed.device.type == "cuda" and placed.fits_one_gpu
    count = torch.cuda.device_count() if several else 0
    if count < 2:
        return []
    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    return listed.split(",")[:count] if listed else [str(n) for n in range(count)]
