"""A real Prefect server on a free port, its command line and its workers."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from tests.flows.servers import answers, free_port, until

ROOT = Path(__file__).parents[2]
PREFECT = [sys.executable, "-m", "prefect", "--no-prompt"]
FINAL = {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"}


class Server:
    """Prefect's API, and its command line with the environment for this server."""

    def __init__(self, url: str, home: Path) -> None:
        self.url = url
        self.client = httpx.Client(base_url=url)
        self.env = {
            **{key: value for key, value in os.environ.items() if key != "MLFLOW_TRACKING_URI"},
            "PREFECT_API_URL": url,
            "PREFECT_HOME": str(home),
            "PYTHONPATH": str(ROOT),  # so that the stages' commands can import tests
        }

    def prefect(self, *arguments: str, **variables: str) -> None:
        subprocess.run([*PREFECT, *arguments], env=self.env | variables, check=True)

    def last_run(self, deployment: str) -> dict[str, Any]:
        """Return the last run of `deployment`; empty if there is none."""
        query = {"deployments": {"name": {"any_": [deployment]}}, "sort": "START_TIME_DESC"}
        runs = self.client.post("/flow_runs/filter", json=query).json()
        return next((run for run in runs if run["start_time"]), {})

    def log(self) -> list[str]:
        """Return the last lines that runs have logged."""
        query = {"sort": "TIMESTAMP_DESC", "limit": 100}
        return [entry["message"] for entry in self.client.post("/logs/filter", json=query).json()]

    def ended(self, deployment: str, after: str | None = None) -> dict[str, Any]:
        """Return the last run of `deployment` if it has ended and its id is not `after`."""
        run = self.last_run(deployment)
        return run if run and run["id"] != after and run["state"]["type"] in FINAL else {}


@contextmanager
def running(env: Mapping[str, str], *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([*PREFECT, *arguments], env=env)
    try:
        yield process
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):  # just after a run a worker may hang
            process.wait(30)
        process.kill()
        process.wait()


@contextmanager
def prefect_server(home: Path) -> Iterator[Server]:
    """Run a server with the work pools gpu and cpu inside the block."""
    port = free_port()
    server = Server(f"http://127.0.0.1:{port}/api", home)
    with running(server.env, "server", "start", "--port", str(port)):
        until(lambda: answers(server.url), 300)
        for pool in ("gpu", "cpu"):
            server.prefect("work-pool", "create", pool, "--type", "process")
        yield server
