"""Samples of the machine during the stages, which survive a kill until they are registered."""

import json
import time
from pathlib import Path

import pytest

from flows import system
from flows.metrics import LONGEST, series


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(system, "SECONDS", 0.01)


def sample_until(count: int) -> None:
    with system.sampled():
        while not system.KEPT.exists() or len(system.KEPT.read_text().splitlines()) < count:
            time.sleep(0.005)


def test_the_machine_is_sampled_during_the_block_and_after_a_kill_added_to() -> None:
    sample_until(2)
    whole = system.KEPT.read_text()
    system.KEPT.write_text(whole + '[17, {"cpu')  # as a kill leaves it
    sample_until(len(whole.splitlines()) + 1)
    assert system.KEPT.read_text().startswith(whole)
    percent = [m for m in system.samples() if m.key == "system/system_memory_usage_percentage"]
    assert [m.step for m in percent] == [*range(len(system.KEPT.read_text().splitlines()))]
    assert all(0 < m.value < 100 for m in percent)
    assert percent == sorted(percent, key=lambda m: m.timestamp)
    assert "system/cpu_utilization_percentage" in {m.key for m in system.samples()}
    assert [*Path().iterdir()] == [Path("data")], "no store of MLflow is made"
    system.clear()
    assert system.samples() == []


def test_no_more_samples_are_registered_than_the_page_can_show() -> None:
    system.KEPT.parent.mkdir(parents=True)
    count = 3 * system.MOST
    system.KEPT.write_text("".join(f"{json.dumps([at, {'cpu': at}])}\n" for at in range(count)))
    kept = system.samples()
    assert system.MOST / 2 < len(kept) <= system.MOST
    assert [(m.timestamp, m.value) for m in kept[:2]] == [(0, 0), (4, 4)]


def test_damaged_samples_fail_no_registration() -> None:
    system.KEPT.parent.mkdir(parents=True)
    system.KEPT.write_bytes(b"\0\xff{\n")
    assert system.samples() == []


@pytest.mark.parametrize(("count", "kept"), [(0, 0), (1, 1), (LONGEST, LONGEST), (2500, 834)])
def test_a_long_series_is_thinned_and_keeps_its_last_step(count: int, kept: int) -> None:
    values = [float(step) for step in range(1, count + 1)]
    made = series({"loss": values})
    assert len(made) == kept
    assert [m.value for m in made] == [m.step for m in made] == sorted(m.step for m in made)
    assert not made or made[-1].step == count
