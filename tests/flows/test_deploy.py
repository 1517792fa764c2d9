"""A real server and a real process worker, on a project of a few seconds."""

import re
import signal
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest
from prefect.settings import PREFECT_API_URL, temporary_settings
from ruamel.yaml import YAML

from citer.config import load_params
from citer.errors import InputError
from flows.deploy import serve
from flows.store import open_store
from tests.flows.prefect_server import ROOT, Server, prefect_server, running
from tests.flows.servers import until
from tests.flows.test_leash import LAUNCHER, dead

MONDAYS, NEVER = "0 3 * * 1", "0 0 29 2 *"

RETRAINS = f"{sys.executable} -c 'from tests.flows.project import retrain; retrain(1)'"
HANGS = f"sh -c '{sys.executable} launcher.py 600 > rank'"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with prefect_server(tmp_path_factory.mktemp("prefect")) as server:
        server.prefect("automation", "create", "--from-file", str(ROOT / "flows/zombies.yaml"))
        yield server


def deploy(server: Server, command: str, cron: str = NEVER) -> None:
    """Deploy the current project with prefect.yaml; its only stage runs `command`."""
    stage = {"foreach": ["1"], "do": {"cmd": command}}
    YAML().dump({"stages": {"evaluate": stage}}, Path("dvc.yaml"))
    weekly = (ROOT / "prefect.yaml").read_text()
    assert MONDAYS in weekly
    in_place = weekly.replace("worktree: true", "worktree: false")  # dvc.yaml is not committed
    Path("prefect.yaml").write_text(in_place.replace(MONDAYS, cron))
    server.prefect("deploy", "--all")


def rank() -> int:
    """Wait for the launcher's rank and return its process id."""
    return int(until(lambda: Path("rank").exists() and Path("rank").read_text(), 60))


@pytest.mark.slow
def test_a_run_scheduled_a_minute_ahead_runs(server: Server, project: Path) -> None:
    soon = datetime.now(UTC) + timedelta(minutes=1, seconds=20)
    deploy(server, RETRAINS, cron=f"{soon.minute} {soon.hour} * * *")
    with running(server.env, "worker", "start", "--pool", "gpu"):
        run = until(lambda: server.ended("gpu"), 240)
    assert run["state"]["type"] == "COMPLETED", run["state"]["message"]
    assert run["state"]["message"].startswith("citer-router version 1 promoted: ")
    assert run["auto_scheduled"]
    artifacts = server.client.post("/artifacts/filter", json={}).json()
    assert [a["key"] for a in artifacts] == ["retrain-results"]
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
def test_a_run_whose_worker_and_flow_are_killed_ends_and_is_marked_as_crashed(
    server: Server, project: Path
) -> None:
    Path("launcher.py").write_text(LAUNCHER)
    deploy(server, HANGS)
    with running(server.env, "worker", "start", "--pool", "gpu") as worker:
        server.prefect("deployment", "run", "retrain/gpu")
        pid = rank()
        flow = next(p for p in psutil.Process(worker.pid).children(recursive=True) if is_flow(p))
        for process in (worker, flow):
            process.send_signal(signal.SIGKILL)
    assert dead(pid, 30)
    run = until(lambda: server.ended("gpu"), 240)
    assert run["state"]["type"] == "CRASHED"


def is_flow(process: psutil.Process) -> bool:
    return "prefect.engine" in process.cmdline()


@pytest.mark.parametrize("cron", ["tomorrow", "0 3 * *", "61 3 * * 1"])
def test_an_invalid_cron_string_is_refused(cron: str) -> None:
    with pytest.raises(InputError, match=re.escape(repr(cron))):
        serve(cron)


def test_a_schedule_without_a_server_is_refused() -> None:
    no_server = temporary_settings(restore_defaults={PREFECT_API_URL})
    with no_server, pytest.raises(InputError, match="prefect server start"):
        serve("0 3 * * 1")
