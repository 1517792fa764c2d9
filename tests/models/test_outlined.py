"""A pair without weights: the sizes of a loaded one, and a pickle that loads it."""

import pickle
from functools import partial

import pytest
import torch

from citer.config.params import PairParams
from citer.decoding.engine import Engine
from citer.executors.base import InLine, WorkerParams
from citer.executors.processes import CPU, Forked, Spawned
from citer.models.folder import PairFolder
from citer.models.outlined import open_model, open_pair
from citer.models.pair import Pair, load_pair
from tests.tiny import TinyPair

outline_pair = partial(load_pair, weights=False)


@pytest.fixture
def placement(folders: TinyPair) -> PairParams:
    return PairParams(slm=str(folders.slm), llm=str(folders.llm), device="cpu", dtype="bfloat16")


def weights(pair: Pair) -> set[str]:
    """The devices of all weights."""
    assert pair.local_llm
    networks = pair.slm.network, pair.local_llm.network
    return {weight.device.type for network in networks for weight in network.parameters()}


def test_it_has_the_facts_of_a_loaded_pair(folders: TinyPair, placement: PairParams) -> None:
    pair, loaded = (make(PairFolder(*folders), placement) for make in (outline_pair, load_pair))
    assert weights(pair) == {"meta"}
    assert pair.identity == loaded.identity
    for model, other in ((pair.slm, loaded.slm), (pair.llm, loaded.llm)):
        assert model.card == other.card
        for fact in ("device", "dtype", "hidden_size", "is_small", "forward"):
            assert getattr(model, fact) == getattr(other, fact), fact
    assert (pair.is_small, pair.is_slow, pair.context) == (True, False, loaded.context)


def test_its_pickle_loads_the_weights_once(folders: TinyPair, placement: PairParams) -> None:
    pair = outline_pair(PairFolder(*folders), placement)
    pickled = pickle.dumps((pair, Engine(pair, 4, 8)))
    again, engine = pickle.loads(pickled)
    assert weights(again) == {"cpu"}
    assert engine.pair.slm is again.slm
    assert pickle.loads(pickled)[0].slm is again.slm, "also for the next job"


@pytest.mark.usefixtures("two_threads")
def test_weights_are_loaded_here_if_this_process_or_its_forks_run_them(
    folders: TinyPair, placement: PairParams
) -> None:
    pair, executor = open_pair(PairFolder(*folders), placement, WorkerParams())
    assert executor == Forked(2)
    assert weights(pair) == {"cpu"}


def test_weights_are_not_loaded_here_if_other_processes_run_them(
    folders: TinyPair, placement: PairParams, monkeypatch: pytest.MonkeyPatch
) -> None:
    spawned = Spawned([CPU, CPU])
    monkeypatch.setattr("citer.models.outlined.executor_for", lambda placed, workers: spawned)
    pair, executor = open_pair(PairFolder(*folders), placement, WorkerParams())
    assert executor is spawned
    assert weights(pair) == {"meta"}
    model, own = open_model("llm", PairFolder(*folders).llm, placement, WorkerParams())
    assert own is spawned
    assert model.card == pair.llm.card


def test_one_thread_needs_no_other_process(folders: TinyPair, placement: PairParams) -> None:
    torch.set_num_threads(1)
    _, executor = open_pair(PairFolder(*folders), placement, WorkerParams())
    assert isinstance(executor, InLine)
