"""Who runs the units of a stage, by the models, the machine and the section `workers`."""

from importlib.machinery import ModuleSpec
from typing import NamedTuple

import pytest
import torch
from pydantic import ValidationError

from citer.errors import InputError
from citer.executors.base import InLine
from citer.executors.choose import executor_for
from citer.executors.processes import Forked, Spawned
from citer.executors.workers import WorkerParams

pytestmark = pytest.mark.usefixtures("two_threads")


class Model(NamedTuple):
    device: torch.device = torch.device("cpu")
    is_small: bool = False
    is_local: bool = True


ON_GPU = Model(torch.device("cuda"))


@pytest.fixture
def four_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def test_small_models_fork_if_there_are_threads_to_replace() -> None:
    assert executor_for(Model(is_small=True)) == Forked(2)
    assert isinstance(executor_for(Model(is_small=False)), InLine)
    torch.set_num_threads(1)
    assert isinstance(executor_for(Model(is_small=True)), InLine)


@pytest.mark.usefixtures("four_gpus")
def test_each_gpu_gets_a_process_that_loads_the_models() -> None:
    executor = executor_for(ON_GPU)
    assert isinstance(executor, Spawned)
    assert executor.devices == ["0", "1", "2", "3"]
    assert executor.remote


@pytest.mark.usefixtures("four_gpus")
def test_models_that_a_server_runs_stay_in_this_process() -> None:
    assert isinstance(executor_for(ON_GPU._replace(is_local=False)), InLine)


def test_a_single_gpu_needs_no_other_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    assert isinstance(executor_for(ON_GPU), InLine)


@pytest.mark.usefixtures("four_gpus")
def test_devices_are_numbers_of_gpus() -> None:
    executor = executor_for(ON_GPU, WorkerParams(devices=(3, 1)))
    assert isinstance(executor, Spawned)
    assert executor.devices == ["3", "1"]


@pytest.mark.usefixtures("four_gpus")
def test_a_stage_that_has_a_part_of_the_gpus_uses_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    for workers in (WorkerParams(), WorkerParams(devices=(0, 1, 2, 3))):
        executor = executor_for(ON_GPU, workers)
        assert isinstance(executor, Spawned)
        assert executor.devices == ["2", "3"]


@pytest.mark.usefixtures("four_gpus")
@pytest.mark.parametrize(
    ("model", "known"), [(ON_GPU, "0, 1, 2, 3"), (Model(), "none")], ids=["gpu", "cpu"]
)
def test_a_device_that_does_not_exist_is_refused(model: Model, known: str) -> None:
    message = f"workers.devices: 7: no such GPU here, expected some of: {known}"
    with pytest.raises(InputError, match=message):
        executor_for(model, WorkerParams(devices=(7,)))


def test_ray_must_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("citer.executors.choose.find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"not installed: pip install 'citer\[ray\]'"):
        executor_for(ON_GPU, WorkerParams(executor="ray"))


def test_ray_has_devices_of_its_own() -> None:
    with pytest.raises(ValidationError, match="devices: ray uses all GPUs of its cluster"):
        WorkerParams(executor="ray", devices=(0, 1))


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nowhere", "h:x", "h:99999999"])
def test_an_address_where_nothing_answers_is_refused(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setattr("citer.executors.choose.find_spec", lambda name: ModuleSpec(name, None))
    monkeypatch.setenv("RAY_ADDRESS", address)
    message = f"RAY_ADDRESS: '{address}': does not answer, expected HOST:PORT"
    with pytest.raises(InputError, match=message):
        executor_for(Model(), WorkerParams(executor="ray"))
