"""Notifications by a real server: to a local webhook, from real runs where they add something."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from prefect.blocks.system import Secret
from prefect.settings import PREFECT_API_URL, temporary_settings
from ruamel.yaml import YAML

from citer.errors import InputError
from flows.notify.alerts import AUTOMATIONS, install
from flows.tracking.store import open_store
from tests.flows.deployment import HANGS, RETRAINS, deploy, rank
from tests.flows.notify.webhook import Webhook, webhook
from tests.flows.prefect_server import Server, prefect_server, running
from tests.flows.project import BIN, ROOT, register_new
from tests.flows.servers import mlflow_server, until
from tests.flows.test_process_tree import LAUNCHER, dead

HEARTBEAT = "PREFECT_FLOWS_HEARTBEAT_FREQUENCY"
CITER = str(BIN / "citer")
DAY = r"\d{4}-\d\d-\d\d \d\d:\d\d"


@pytest.fixture(scope="module")
def hook() -> Iterator[Webhook]:
    with webhook() as hook:
        yield hook


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, hook: Webhook) -> Iterator[Server]:
    """A server whose alerts were installed for another address, and then for the webhook."""
    with prefect_server(tmp_path_factory.mktemp("prefect")) as server:
        for target in ("http://127.0.0.1:9/other", hook.url):
            subprocess.run([CITER, "alerts", target], env=server.env, check=True)
        yield server


def page(server: Server, run_id: str) -> str:
    return f"{str(server.client.base_url).removesuffix('/api/')}/runs/flow-run/{run_id}"


def start(server: Server, flow: str, name: str) -> str:
    """Make a running flow run by hand; return its id."""
    flow_id = server.client.post("/flows/", json={"name": flow}).json()["id"]
    run = {"flow_id": flow_id, "name": name, "state": {"type": "RUNNING"}}
    return str(server.client.post("/flow_runs/", json=run).json()["id"])


def end(server: Server, run_id: str, state: str, message: str) -> None:
    new = {"state": {"type": state, "message": message}, "force": True}
    server.client.post(f"/flow_runs/{run_id}/set_state", json=new).raise_for_status()


@pytest.mark.slow
def test_the_automations_are_there_once_and_stay_disabled(server: Server, hook: Webhook) -> None:
    names = [each["name"] for each in automations(server)]
    assert len(names) == len({*names}) == 6
    late = next(each for each in automations(server) if "late" in each["name"])
    place = f"/automations/{late['id']}"
    server.client.patch(place, json={"enabled": False}).raise_for_status()
    block = "custom-webhook/citer-alerts"
    subprocess.run([CITER, "alerts", block], env=server.env, check=True)
    assert [each["name"] for each in automations(server) if not each["enabled"]] == [late["name"]]
    server.client.patch(place, json={"enabled": True}).raise_for_status()
    secrets = server.client.post("/block_documents/filter", json={}).text
    assert "citer-alerts" in secrets
    assert hook.url not in secrets


@pytest.mark.slow
def test_a_block_that_does_not_exist_or_cannot_notify_is_refused(server: Server) -> None:
    with temporary_settings({PREFECT_API_URL: server.env["PREFECT_API_URL"]}):
        Secret(value="s").save("password")
        with pytest.raises(InputError, match=r"^slack-webhook/team: no such block"):
            install("slack-webhook/team")
        with pytest.raises(InputError, match=r"^secret/password: not a notification block"):
            install("secret/password")


def automations(server: Server) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = server.client.post("/automations/filter", json={}).json()
    return found


@pytest.mark.slow
def test_failed_and_crashed_retrainings_are_notified_and_no_other_flow(
    server: Server, hook: Webhook
) -> None:
    other = start(server, "other", "of another team")
    end(server, other, "FAILED", "their business")
    for state in ("FAILED", "CRASHED"):
        run = start(server, "retrain", f"my {state}")
        end(server, run, state, "params.yaml: train: missing")
        text = hook.told(f"my {state}", "params.yaml: train: missing", page(server, run))
        assert text.splitlines()[0] == f"Retraining my {state} {state.lower()}"
    assert not any("their business" in text for text in hook.texts)


CHANGED = """
from citer.serving.promise import Entry, Promise, Standing
from flows.notify.events import promise_changed
path = ["risk 0.9 audit 0.25", "risk 0.95 audit 0.25", "score 1"]
standing = Standing(Promise(path=path, graded=0.05, same=0.05, delta=0.05), 20)
lost = [Entry(number, "2026-11-26 12:00:00", path[0], True, 0.05) for number in range(3)]
kept = [Entry(number, "2026-11-26 13:00:00", path[0], False, 0.05) for number in range(3, 99)]
for step in standing.take([*lost, *kept, Entry(99, "2026-11-26 14:00:00")]):
    promise_changed("citer-router/7", standing, step)
"""


@pytest.mark.slow
def test_a_promise_that_is_revoked_or_restored_is_notified(server: Server, hook: Webhook) -> None:
    subprocess.run([sys.executable, "-c", CHANGED], env=server.env, check=True)
    revoked = hook.told("The promise of citer-router/7 is revoked")
    for words in (
        "The rule risk 0.95 audit 0.25 is in force, step 1 of 2. Before: risk 0.9 audit 0.25.",
        "3 of 3 shadow answers lost, e-detector 43.98 ≥ 20; e-value 33.066.",
        "its run is among the latest: ",
    ):
        assert words in revoked, revoked
    restored = hook.told("The promise of citer-router/7 is restored")
    assert "The rule risk 0.9 audit 0.25 is in force, step 0 of 2. " in restored
    assert "a person stepped forward; e-value " in restored
    assert "among the latest" not in restored


@pytest.mark.slow
def test_a_run_that_no_worker_takes_is_late(server: Server, hook: Webhook, project: Path) -> None:
    deploy(server, "true")
    server.prefect("deployment", "run", "retrain/cpu")
    text = hook.told("of cpu is late", "work pool cpu")
    assert re.search(f"It was due at {DAY} UTC", text)
    run_id = text.rpartition("/")[2]
    assert text.endswith(page(server, run_id))
    server.client.delete(f"/flow_runs/{run_id}").raise_for_status()


@pytest.mark.slow
def test_a_router_that_is_kept_back_is_notified_and_three_pages_show_each_other(
    server: Server, hook: Webhook, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker's own environment names no store: the deployment does."""
    register_new(1)
    Path("mlruns/mlflow.db").rename(tmp_path / "mlflow.db")
    with mlflow_server(tmp_path) as url:
        deploy(server, RETRAINS.format("2, correct=100"), MLFLOW_TRACKING_URI=url)
        with running(server.env, "worker", "start", "--pool", "cpu"):
            server.prefect("deployment", "run", "retrain/cpu")
            run = until(lambda: server.ended("cpu"), 600)
        monkeypatch.setenv("MLFLOW_TRACKING_URI", url)
        store = open_store("citer")
        version = store.client.get_model_version("citer-router", "3")
        [parent] = store.runs(f"tags.prefect_run = '{run['id']}'")
    assert version.tags["decision"] == "kept back"
    assert run["state"]["message"].startswith("citer-router version 3 kept back: ")
    assert run["state"]["message"].endswith(f"MLflow's store: {url}")
    assert re.fullmatch(f"{DAY} [0-9a-f]{{7,}} cpu", run["name"])
    text = hook.told("citer-router/3 was kept back", version.tags["reason"])
    assert text.endswith(f"Retraining {run['name']}: {page(server, run['id'])}")
    assert parent.data.tags["kind"] == "retraining"
    assert parent.data.tags["prefect_page"] == page(server, run["id"])
    assert parent.data.tags["version"] == "3"
    query = {"artifacts": {"key": {"any_": ["retrain-results"]}}}
    [card] = server.client.post("/artifacts/filter", json=query).json()
    assert card["flow_run_id"] == run["id"]
    assert card["data"].startswith(run["state"]["message"])
    assert not Path("mlruns/mlflow.db").exists()


@pytest.mark.slow
def test_a_run_whose_worker_and_flow_are_killed_ends_and_is_notified_as_crashed(
    server: Server, hook: Webhook, project: Path
) -> None:
    Path("launcher.py").write_text(LAUNCHER)
    deploy(server, HANGS)
    with running(server.env, "worker", "start", "--pool", "gpu") as worker:
        server.prefect("deployment", "run", "retrain/gpu")
        pid = rank()
        flow = next(p for p in psutil.Process(worker.pid).children(recursive=True) if is_flow(p))
        for process in (worker, flow):
            process.send_signal(signal.SIGKILL)
    assert dead(pid, 120)
    run = until(lambda: server.ended("gpu"), 600)
    assert run["state"]["type"] == "CRASHED"
    hook.told(f"Retraining {run['name']} crashed", "No heartbeat", page(server, run["id"]))


@pytest.mark.parametrize("by", ["citer", "a worker"])
def test_three_heartbeats_are_sent_before_a_run_counts_as_crashed(by: str) -> None:
    if by == "citer":  # `citer run` and `citer schedule` start as modules of `flows`
        env = {name: value for name, value in os.environ.items() if name != HEARTBEAT}
        script = f"import flows, os; print(os.environ['{HEARTBEAT}'])"
        seconds = subprocess.check_output([sys.executable, "-c", script], env=env)
    else:
        seconds = read_yaml(ROOT / "prefect.yaml")["definitions"]["job"]["env"][HEARTBEAT]
    silent = next(
        each for each in read_yaml(AUTOMATIONS)["automations"] if "silent" in each["name"]
    )
    assert 3 * int(seconds) <= silent["trigger"]["within"]


def read_yaml(path: Path) -> dict[str, Any]:
    return dict(YAML(typ="safe").load(path))


def is_flow(process: psutil.Process) -> bool:
    return "prefect.engine" in process.cmdline()
