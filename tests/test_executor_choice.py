"""Who runs the units of a stage, by the models, the machine and the section `workers`."""

from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from citer.errors import InputError
from citer.executors.base import InLine, WorkerParams
from citer.executors.processes import Forked, Spawned
from citer.models.outlined import executor_for

pytestmark = pytest.mark.usefixtures("two_threads")


class Model(NamedTuple):
    device: torch.device = torch.device("cpu")
    is_small: bool = False
    fits_one_gpu: bool = True


ON_GPU, HERE = Model(torch.device("cuda")), WorkerParams()


@pytest.fixture
def four_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.fixture
def with_ray(monkeypatch: pytest.MonkeyPatch) -> WorkerParams:
    monkeypatch.setattr("citer.models.outlined.find_spec", lambda name: ModuleSpec(name, None))
    return WorkerParams(executor="ray")


def test_small_models_fork_if_there_are_threads_to_replace() -> None:
    assert executor_for(Model(is_small=True), HERE) == Forked(2)
    assert isinstance(executor_for(Model(is_small=False), HERE), InLine)
    torch.set_num_threads(1)
    assert isinstance(executor_for(Model(is_small=True), HERE), InLine)


@pytest.mark.usefixtures("four_gpus")
def test_each_gpu_gets_a_process_that_loads_the_models() -> None:
    executor = executor_for(ON_GPU, HERE)
    assert isinstance(executor, Spawned)
    assert executor.devices == ["0", "1", "2", "3"]
    assert executor.remote


@pytest.mark.usefixtures("four_gpus")
def test_models_that_cannot_be_copied_to_each_gpu_stay_in_this_process() -> None:
    assert isinstance(executor_for(ON_GPU._replace(fits_one_gpu=False), HERE), InLine)


def test_a_single_gpu_needs_no_other_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    assert isinstance(executor_for(ON_GPU, HERE), InLine)


@pytest.mark.usefixtures("four_gpus")
def test_a_stage_that_has_a_part_of_the_gpus_uses_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    executor = executor_for(ON_GPU, HERE)
    assert isinstance(executor, Spawned)
    assert executor.devices == ["2", "3"]


def test_ray_must_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("citer.models.outlined.find_spec", lambda name: None)
    with pytest.raises(
        InputError, match=r"not installed; in a clone of citer: pip install '\.\[ray\]'"
    ):
        executor_for(ON_GPU, WorkerParams(executor="ray"))


def test_an_actor_has_one_gpu_so_it_holds_no_llm_on_several(with_ray: WorkerParams) -> None:
    with pytest.raises(InputError, match=r"^workers.executor: ray: expected local, as pair\.llm_"):
        executor_for(ON_GPU._replace(fits_one_gpu=False), with_ray)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere", "h:x", "h:99999999"])
def test_an_address_where_nothing_answers_is_refused(
    with_ray: WorkerParams, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", address)
    message = f"RAY_ADDRESS: '{address}': does not answer, expected HOST:PORT"
    with pytest.raises(InputError, match=message):
        executor_for(Model(), with_ray)


def test_without_a_cluster_the_user_learns_how_to_start_one(
    with_ray: WorkerParams, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    ended = tmp_path / "ray_current_cluster"
    monkeypatch.setattr("citer.executors.actors.CURRENT", ended)
    for _ in range(2):
        with pytest.raises(InputError, match=r"no cluster runs here, .+ `ray start --head"):
            executor_for(Model(), with_ray)
        ended.write_text("127.0.0.1:1")
