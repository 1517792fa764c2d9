"""A real server and a real process worker, on a project of a few seconds."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings

from citer.config import load_params
from citer.errors import InputError
from flows.deploy import serve
from flows.store import open_store
from tests.flows.deployment import HANGS, RETRAINS, deploy, rank
from tests.flows.prefect_server import Server, prefect_server, running
from tests.flows.servers import until
from tests.flows.test_leash import LAUNCHER, dead


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with prefect_server(tmp_path_factory.mktemp("prefect")) as server:
        yield server


@pytest.mark.slow
def test_a_run_scheduled_a_minute_ahead_runs(server: Server, project: Path) -> None:
    soon = datetime.now(UTC) + timedelta(minutes=1, seconds=20)
    deploy(server, RETRAINS.format(1), cron=f"{soon.minute} {soon.hour} * * *")
    other = {"MLFLOW_TRACKING_URI": "sqlite:////other.db"}  # it was not set at the deployment
    with running(server.env | other, "worker", "start", "--pool", "gpu"):
        run = until(lambda: server.ended("gpu"), 240)
    assert run["state"]["type"] == "COMPLETED", run["state"]["message"]
    assert run["state"]["message"].startswith("citer-router version 1 promoted: ")
    assert run["state"]["message"].endswith(f"sqlite:///{project}/mlruns/mlflow.db")
    assert run["auto_scheduled"]
    artifacts = server.client.post("/artifacts/filter", json={}).json()
    assert {"retrain-results", "retrain-version"} <= {each["key"] for each in artifacts}
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


@pytest.mark.parametrize("cron", ["tomorrow", "0 3 * *", "61 3 * * 1"])
def test_an_invalid_cron_string_is_refused(cron: str) -> None:
    with pytest.raises(InputError, match=re.escape(repr(cron))):
        serve(cron)


def test_a_schedule_without_a_server_is_refused() -> None:
    no_server = temporary_settings(restore_defaults={PREFECT_API_URL})
    with no_server, pytest.raises(InputError, match="prefect server start"):
        serve("0 3 * * 1")
