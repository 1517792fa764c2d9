"""Stages side by side: a real Prefect server, real DVC stages."""

import os
import shutil
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.settings import PREFECT_API_URL, get_current_settings, temporary_settings
from ruamel.yaml import YAML

from citer.errors import InputError
from flows.dvc_commands import LOCK
from flows.gpus import Room
from flows.repro import one_run, plan
from flows.side_by_side import run_stages
from flows.stages import TAG, stage_task
from tests.flows.conftest import Pipeline
from tests.flows.project import ROOT
from tests.flows.servers import until
from tests.flows.test_process_tree import dead

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("prefect")]


@flow
def run(places: int) -> dict[str, float | None]:
    with one_run(print):
        return run_stages(plan(print), Room(places), timedelta(minutes=5), print)


def shell(command: str) -> str:
    return f"sh -c '{command}'"


def when(condition: str, command: str) -> str:
    return shell(f"until {condition}; do sleep 0.2; done; {command}")


# If BESIDE is set, `first` ends only after `second` has ended.
STAGES = {
    "first": {
        "cmd": when('test -z "$BESIDE" || grep -q "  second:" dvc.lock', "cp a b"),
        "deps": ["a"],
        "outs": ["b"],
    },
    "second": {"cmd": "cp a c", "deps": ["a"], "outs": ["c"]},
    "third": {"cmd": shell("cat b c > d"), "deps": ["b", "c"], "outs": ["d"]},
}


def test_stages_side_by_side_leave_the_same_bytes_as_one_after_another(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline(STAGES)
    Path("a").write_text("content")
    shutil.copytree(".", tmp_path / "beside")
    alone = run(1)
    one_after_another = LOCK.read_bytes(), Path("d").read_bytes()
    monkeypatch.chdir(tmp_path / "beside")
    monkeypatch.setenv("BESIDE", "yes")
    beside = run(2)
    assert list(beside) == list(alone) == ["first", "second", "third"]
    assert (LOCK.read_bytes(), Path("d").read_bytes()) == one_after_another
    assert set(run(2).values()) == {None}  # nothing is stale
    with get_client(sync_client=True) as client:
        assert all(TAG in each.tags for each in client.read_task_runs(limit=3))


def test_a_temporary_server_is_asked_for_no_limits() -> None:
    assert stage_task("first").tags == {TAG}
    with temporary_settings(restore_defaults={PREFECT_API_URL}):
        assert not stage_task("first").tags


def test_after_a_failure_those_that_run_end_and_no_other_starts(pipeline: Pipeline) -> None:
    pipeline(
        {
            "bad": {"cmd": [when("test -e started", "true"), "citer label 9"]},
            "long": {"cmd": shell("touch started; sleep 4; touch out"), "outs": ["out"]},
            "later": {"cmd": "touch end", "deps": ["out"], "outs": ["end"]},
        }
    )
    with pytest.raises(InputError, match=r"lists iterations 1, 2, not 9$"):
        run(2)
    assert list(YAML(typ="safe").load(LOCK)["stages"]) == ["long"]
    assert not Path("end").exists()


# A shell starts a job in the background with SIGINT ignored, and its children inherit that.
INTERRUPTIBLE = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from tests.flows.test_side_by_side import run
run(2)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_the_end_of_the_flow_ends_all_stages(pipeline: Pipeline, number: signal.Signals) -> None:
    names = ["one", "two"]
    pipeline({name: {"cmd": shell(f"echo $$ > {name}; exec sleep 600")} for name in names})
    url = get_current_settings().api.url
    env = os.environ | {"PYTHONPATH": str(ROOT), "PREFECT_API_URL": str(url)}
    process = subprocess.Popen([sys.executable, "-c", INTERRUPTIBLE], env=env)
    pids = [
        int(until(lambda file=Path(name): file.exists() and file.read_text(), 300))
        for name in names
    ]
    process.send_signal(number)
    assert process.wait(300) != 0
    assert all(dead(pid, 120) for pid in pids)


def test_a_killed_stage_is_retried_while_another_runs(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flows.stages.run_stage.retry_delay_seconds", 0)
    flaky = "echo try >> tries; test $(wc -l < tries) -gt 1 || kill -9 $$; touch b"
    pipeline(
        {
            "long": {"cmd": when("test -e b", "touch a"), "outs": ["a"]},
            "flaky": {"cmd": shell(flaky), "outs": ["b"]},
        }
    )
    assert set(run(2)) == {"long", "flaky"}
    assert Path("tries").read_text() == "try\ntry\n"
