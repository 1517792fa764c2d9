"""Both servers on a real Postgres: a retraining, a comparison and a promotion."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.flows.postgres_server import NEEDED, postgres_server, query
from tests.flows.prefect_server import prefect_server
from tests.flows.project import retrain_for_a_run, run
from tests.flows.servers import NO_JOBS, free_port, serving

pytestmark = [pytest.mark.slow, NEEDED]


@pytest.fixture
def postgres() -> Iterator[int]:
    with postgres_server("prefect", "mlflow") as port:
        yield port


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
    with serving(server, NO_JOBS, url), prefect_server(tmp_path / "prefect") as orchestrator:
        monkeypatch.setenv("PREFECT_API_URL", orchestrator.env["PREFECT_API_URL"])
        monkeypatch.setenv("MLFLOW_TRACKING_URI", url)
        for seed in (1, 2):
            retrain_for_a_run(seed)
            run(project, "citer", "run")
        shown = run(project, "citer", "compare")
        assert "champion and challenger" in " ".join(shown.split())
        run(project, "citer", "promote", "2")
    assert query(postgres, "prefect", "select state_name from flow_run") == [("Completed",)] * 2
    found = "select version from registered_model_aliases where alias = 'champion'"
    assert query(postgres, "mlflow", found) == [(2,)]
