"""A real server and a real process worker, on a project of a few seconds."""

import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import torch
from prefect.settings import PREFECT_API_URL, temporary_settings

from citer.config.params import load_params
from citer.errors import InputError, TemporaryError
from flows.pipeline import schedule
from flows.server import prefect_page
from flows.tracking.store import open_store
from tests.flows.deployment import HANGS, RETRAINS, deploy, rank
from tests.flows.prefect_server import Server, prefect_server, running
from tests.flows.servers import until
from tests.flows.test_process_tree import LAUNCHER, dead

# Waits in the middle of its work until the test has seen the progress.
WORKING = """
import time
from pathlib import Path
import citer.progress

citer.progress.LOG_SECONDS = 0
with citer.progress.progress("label 1", 4, "rows") as advance:
    advance(1)
    while not Path("seen").exists():
        time.sleep(0.1)
    advance(3)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with prefect_server(tmp_path_factory.mktemp("prefect")) as server:
        yield server


@pytest.mark.slow
def test_a_run_scheduled_for_later_runs(server: Server, project: Path) -> None:
    soon = datetime.now(UTC) + timedelta(minutes=2, seconds=20)  # a deployment takes up to two
    deploy(server, RETRAINS.format(1), cron=f"{soon.minute} {soon.hour} * * *")
    other = {"MLFLOW_TRACKING_URI": "sqlite:////other.db"}  # it was not set at the deployment
    with running(server.env | other, "worker", "start", "--pool", "gpu"):
        run = until(lambda: server.ended("gpu"), 600)
    assert run["state"]["type"] == "COMPLETED", run["state"]["message"]
    assert run["state"]["message"].startswith("citer-router version 1 promoted: ")
    assert run["state"]["message"].endswith(f"sqlite:///{project}/mlruns/mlflow.db")
    assert run["auto_scheduled"]
    artifacts = server.client.post("/artifacts/filter", json={}).json()
    assert "retrain-results" in {each["key"] for each in artifacts}
    store = open_store(load_params().register_.experiment)
    assert store.client.get_model_version_by_alias("citer-router", "champion").version


@pytest.mark.slow
def test_cancelling_a_run_ends_the_grandchild(server: Server, project: Path) -> None:
    Path("launcher.py").write_text(LAUNCHER)
    deploy(server, HANGS)
    with running(server.env, "worker", "start", "--pool", "cpu"):
        server.prefect("deployment", "run", "retrain/cpu")
        pid = rank()
        server.prefect("flow-run", "cancel", server.last_run("cpu")["id"])
        assert dead(pid, 60)
        run = until(lambda: server.ended("cpu"), 60)
    assert run["state"]["type"] == "CANCELLED"


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_the_gpu_deployment_fails_at_once_without_a_gpu(server: Server, project: Path) -> None:
    deploy(server, "touch ran", device="cuda")
    earlier = server.last_run("gpu").get("id")
    with running(server.env, "worker", "start", "--pool", "gpu"):
        server.prefect("deployment", "run", "retrain/gpu")
        run = until(lambda: server.ended("gpu", after=earlier), 300)
    assert run["state"]["type"] == "FAILED"
    refused = "CITER_DEVICE: 'cuda': no CUDA device here, expected auto or cpu"
    assert run["state"]["message"] == refused
    assert not Path("ran").exists()


@pytest.mark.slow
def test_a_running_stage_shows_its_progress_in_the_log(server: Server, project: Path) -> None:
    Path("working.py").write_text(WORKING)
    deploy(server, f"{sys.executable} working.py")
    with running(server.env, "worker", "start", "--pool", "cpu"):
        server.prefect("deployment", "run", "retrain/cpu")
        until(lambda: any("label 1: 1 of 4 rows (25 %)" in line for line in server.log()), 300)
        Path("seen").touch()
        until(lambda: any("label 1: 4 of 4 rows (100 %)" in line for line in server.log()), 300)


@pytest.mark.parametrize(
    "cron", ["", "tomorrow", "@daily", "0 3 * *", "0 0 3 * * 1", "61 3 * * 1", "0 0 LW * *"]
)
def test_an_invalid_cron_string_is_refused(cron: str) -> None:
    with pytest.raises(InputError, match=f"^--cron: {re.escape(repr(cron))}: expected five fields"):
        schedule(cron)


def test_a_schedule_without_a_server_is_refused() -> None:
    no_server = temporary_settings(restore_defaults={PREFECT_API_URL})
    with no_server, pytest.raises(InputError, match="prefect server start"):
        schedule("0 3 * * 1")


def test_a_schedule_on_a_server_that_does_not_answer_is_refused() -> None:
    """Previously, this ended in a traceback of httpx."""
    gone = temporary_settings({PREFECT_API_URL: (url := "http://127.0.0.1:9/api")})
    with gone, pytest.raises(TemporaryError, match=f"^Prefect at {url}: no answer"):
        schedule("0 3 * * 1")


def test_next_steps_name_the_page_of_the_server_in_use() -> None:
    with temporary_settings({PREFECT_API_URL: "http://there:4200/api"}):
        assert prefect_page() == "http://there:4200"
    with temporary_settings(restore_defaults={PREFECT_API_URL}):
        assert "prefect server start" in prefect_page()
