"""How Prefect's run and MLflow's name each other, with a server and without."""

import re
from pathlib import Path

import pytest
from prefect.settings import PREFECT_API_URL, PREFECT_UI_URL, temporary_settings

from flows.lineage import run_name, run_tags
from tests.flows.project import retrain
from tests.flows.test_tracking import tracked

RUN = "8c0b0b1e-6f2a-4c8e-9a51-0d3b8a6f7c11"


def test_only_the_run_of_the_retraining_has_the_id_of_prefects_run(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a server there is no page, so no address."""
    monkeypatch.setenv("PREFECT__FLOW_RUN_ID", RUN)  # as in a run's process
    retrain(1)
    with temporary_settings(restore_defaults={PREFECT_API_URL, PREFECT_UI_URL}):
        _, run, iterations = tracked()
    assert run.data.tags["prefect_run"] == RUN
    assert "prefect_page" not in run.data.tags
    assert not any("prefect_run" in iteration.data.tags for iteration in iterations)


def test_with_a_server_the_run_has_the_address_of_its_page(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_tags() == {}
    monkeypatch.setenv("PREFECT__FLOW_RUN_ID", RUN)
    with temporary_settings({PREFECT_UI_URL: "http://there:4200"}):
        assert run_tags()["prefect_page"] == f"http://there:4200/runs/flow-run/{RUN}"


def test_a_run_without_deployment_and_repository_has_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d no commit citer run", run_name())
