"""A real server and a real process worker, on a project of a few seconds."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from citer.config.params import load_params
from citer.errors import InputError
from flows.pipeline import schedule
from flows.tracking.store import open_store
from tests.flows.deployment import HANGS, RETRAINS, deploy, rank
from tests.flows.prefect_server import Server, prefect_server, running
from tests.flows.servers import until
from tests.flows.test_process_tree import LAUNCHER, dead


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


@pytest.mark.parametrize(
    "cron", ["", "tomorrow", "@daily", "0 3 * *", "0 0 3 * * 1", "61 3 * * 1", "0 0 LW * *"]
)
def test_an_invalid_cron_string_is_refused(cron: str) -> None:
    with pytest.raises(InputError, match=f"^--cron: {re.escape(repr(cron))}: expected five fields"):
        schedule(cron)
