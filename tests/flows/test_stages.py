"""Stages as Prefect tasks: a real Prefect server, real DVC stages."""

import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from prefect import State, flow
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import TaskRun
from prefect.settings import get_current_settings

from flows.pipeline import run_stage, run_stages
from flows.repro import one_run, plan
from tests.flows.conftest import Pipeline
from tests.flows.project import ROOT
from tests.flows.servers import until
from tests.flows.test_process_tree import dead

pytestmark = pytest.mark.usefixtures("prefect")

FAILS_ONCE = "sh -c 'echo try >> tries; test $(wc -l < tries) -gt 1 && touch out'"


def run(name: str) -> State[None]:
    task = run_stage.with_options(name=name, task_run_name=name, retry_delay_seconds=0)
    return task(name, timedelta(minutes=1), return_state=True)


def task_run_of(state: State[None]) -> TaskRun:
    assert state.state_details.task_run_id
    with get_client(sync_client=True) as client:
        return client.read_task_run(state.state_details.task_run_id)


def test_an_unchanged_stage_is_cached(pipeline: Pipeline, caplog: pytest.LogCaptureFixture) -> None:
    pipeline({"make": {"cmd": "sh -c 'echo made; touch out'", "outs": ["out"]}})
    first, second = run("make"), run("make")
    assert (first.name, second.name) == ("Completed", "Cached")
    assert task_run_of(first).name == "make"
    assert ("prefect.task_runs", "made") in {(each.name, each.message) for each in caplog.records}


def test_a_stage_that_dies_is_retried(pipeline: Pipeline) -> None:
    pipeline({"flaky": {"cmd": FAILS_ONCE, "outs": ["out"]}})
    state = run("flaky")
    assert state.is_completed()
    assert task_run_of(state).run_count == 2


def test_bad_input_fails_at_once_with_its_line_in_the_state(pipeline: Pipeline) -> None:
    pipeline({"label": {"cmd": ["echo try >> tries", "citer label 9"]}})
    state = run("label")
    assert state.is_failed()
    assert (state.message or "").endswith("InputError: params.yaml lists iterations 1, 2, not 9")
    assert Path("tries").read_text() == "try\n"


@flow
def run_all() -> None:
    with one_run(print):
        list(run_stages(plan(), timedelta(minutes=5)))


# A shell starts a job in the background with SIGINT ignored, and its children inherit that.
INTERRUPTIBLE = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from tests.flows.test_stages import run_all
run_all()
"""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_the_end_of_the_flow_ends_its_stage(pipeline: Pipeline, number: signal.Signals) -> None:
    pipeline({"long": {"cmd": "sh -c 'echo $$ > pid; exec sleep 600'"}})
    url = get_current_settings().api.url
    env = os.environ | {"PYTHONPATH": str(ROOT), "PREFECT_API_URL": str(url)}
    process = subprocess.Popen([sys.executable, "-c", INTERRUPTIBLE], env=env)
    file = Path("pid")
    pid = int(until(lambda: file.exists() and file.read_text(), 300))
    process.send_signal(number)
    assert process.wait(300) != 0
    assert dead(pid, 120)
