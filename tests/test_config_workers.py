"""The section `workers`: defaults, refusals, and no stage that depends on it."""

from pathlib import Path

import pytest

from citer.config.params import load_params
from citer.errors import InputError
from citer.executors.workers import WorkerParams
from tests.test_config_removed import SHIPPED, loaded

DEVICES = "devices: auto"


def test_an_older_file_has_no_such_section(tmp_path: Path) -> None:
    before, _, _ = SHIPPED.read_text().partition("\nworkers:")
    (tmp_path / "params.yaml").write_text(before)
    assert load_params(tmp_path / "params.yaml").workers == WorkerParams()


def test_devices_are_numbers(tmp_path: Path) -> None:
    assert loaded(tmp_path, (DEVICES, "devices: [1, 0]")).workers.devices == (1, 0)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ("[0, 1, 0]", "workers.devices: 0 is listed twice"),
        ("[]", r"workers.devices: \[\]: expected auto, or numbers of GPUs such as \[0, 1\]"),
        ("[-1]", r"workers.devices: \[-1\]: expected auto, or numbers of GPUs"),
        ("all", "workers.devices: 'all': expected auto, or numbers of GPUs"),
        ("[true]", r"workers.devices: \[True\]: expected auto, or numbers of GPUs"),
    ],
)
def test_other_devices_are_refused_in_one_line(tmp_path: Path, found: str, expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        loaded(tmp_path, (DEVICES, f"devices: {found}"))


def test_there_are_no_gpus_to_number_if_the_pair_runs_on_the_cpu(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"workers.devices: GPUs, but pair.device is cpu"):
        loaded(tmp_path, ("device: auto", "device: cpu"), (DEVICES, "devices: [0]"))
