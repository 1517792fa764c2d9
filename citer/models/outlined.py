"""Models whose weights only worker processes load, and the choice between them and loaded ones."""

from dataclasses import replace

import torch

from citer.config.pair import PairParams
from citer.executors.base import Executor, InLine, WorkerParams
from citer.executors.choose import executor_for
from citer.models.device import device_for
from citer.models.folder import Carded, ModelFolder, PairFolder, outline
from citer.models.pair import LanguageModel, Pair, load_model, load_pair, make_model, make_pair
from citer.models.rounding import round_weights


def open_pair(
    folders: PairFolder, params: PairParams, workers: WorkerParams
) -> tuple[Pair, Executor]:
    """Return a pair and the executor that runs its jobs. Loads the weights if this process runs it.

    Raises InputError if a device does not exist.
    """
    pair = outline_pair(folders, params)
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
    model = outline_model(name, folder, params)
    executor = executor_for(model, workers)
    return (model if executor.remote else load_model(name, folder, params)), executor


def outline_pair(folders: PairFolder, params: PairParams) -> Pair:
    return make_pair(outline_model, folders, params)


def outline_model(name: str, folder: ModelFolder, params: PairParams) -> LanguageModel:
    network = outline(folder.path).to(getattr(torch, params.dtype))
    if folder.weights == "int8":
        round_weights(network)
    model = make_model(name, folder, params, network)
    return replace(model, runs_on=device_for(name, params))
