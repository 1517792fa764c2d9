"""Both servers on a real Postgres: a retraining, a comparison and a promotion."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg2
import pytest

from tests.flows.prefect_server import prefect_server
from tests.flows.project import retrain_for_a_run
from tests.flows.servers import free_port, serving

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("initdb"), reason="needs Postgres: initdb is not on PATH"),
]
OWNER = "postgres" if os.geteuid() == 0 else None  # Postgres refuses to run as root
TELEMETRY = {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}


def command(*words: str) -> None:
    subprocess.run(words, user=OWNER, check=True, stdout=subprocess.DEVNULL, cwd="/")


def query(port: int, database: str, sql: str) -> list[tuple[object, ...]]:
    address = f"postgresql://postgres@127.0.0.1:{port}/{database}"
    with closing(psycopg2.connect(address)) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute(sql)
            return cursor.fetchall() if cursor.description else []


@pytest.fixture
def postgres() -> Iterator[int]:
    """The port of a new cluster, in a folder that its owner can reach."""
    folder = tempfile.mkdtemp()
    if OWNER:
        shutil.chown(folder, OWNER)
    port, data = free_port(), f"{folder}/data"
    settings = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"
    try:
        command("initdb", "-D", data, "-U", "postgres", "-A", "trust", "--no-sync")
        command("pg_ctl", "-D", data, "-l", f"{folder}/log", "-o", settings, "-w", "start")
        for name in ("prefect", "mlflow"):
            query(port, "postgres", f"create database {name}")
        yield port
    finally:
        if Path(data, "postmaster.pid").exists():
            command("pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
        shutil.rmtree(folder)


def citer(*arguments: str) -> str:
    run = [sys.executable, "-c", "from citer.cli.main import main; main()", *arguments]
    done = subprocess.run(run, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return " ".join(done.stdout.split())


def test_a_retraining_a_comparison_and_a_promotion(
    project: Path, postgres: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = f"postgres@127.0.0.1:{postgres}"
    monkeypatch.setenv(
        "PREFECT_API_DATABASE_CONNECTION_URL", f"postgresql+asyncpg://{base}/prefect"
    )
    url = f"http://127.0.0.1:{(port := free_port())}"
    backend = ["--backend-store-uri", f"postgresql://{base}/mlflow"]
    artifacts = ["--artifacts-destination", str(tmp_path / "artifacts")]
    server = [sys.executable, "-m", "mlflow", "server", *backend, *artifacts, "--port", str(port)]
    with serving(server, TELEMETRY, url), prefect_server(tmp_path / "prefect") as orchestrator:
        monkeypatch.setenv("PREFECT_API_URL", orchestrator.env["PREFECT_API_URL"])
        monkeypatch.setenv("MLFLOW_TRACKING_URI", url)
        for seed in (1, 2):
            retrain_for_a_run(seed)
            citer("run")
        assert "champion and challenger" in citer("compare")
        citer("promote", "2")
    assert query(postgres, "prefect", "select state_name from flow_run") == [("Completed",)] * 2
    found = "select version from registered_model_aliases where alias = 'champion'"
    assert query(postgres, "mlflow", found) == [(2,)]
