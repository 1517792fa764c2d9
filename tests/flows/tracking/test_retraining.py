"""The run of a retraining in a real store, from its start; how Prefect's run and it are named."""

import re
import time
from pathlib import Path

import pytest
from mlflow.entities import Run, ViewType
from prefect.settings import PREFECT_API_URL, PREFECT_UI_URL, temporary_settings

from citer.errors import InputError, TemporaryError
from flows.tracking import contents, retraining
from flows.tracking.contents import children
from flows.tracking.retraining import (
    KILLED,
    NOTE,
    failing_run,
    log_seconds,
    monitored_run,
    open_run,
    run_name,
    run_tags,
)
from flows.tracking.store import make_store, open_store
from tests.flows.project import register, retrain
from tests.flows.tracking.registered import holder, versions
from tests.flows.tracking.test_contents import tracked

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


def retrained(seed: int) -> None:
    """Retrain as the flow does: the run is open before the first stage."""
    with failing_run():
        with monitored_run():
            retrain(seed)
            log_seconds("label@1", 2.5)
        register()


def runs(view: int = ViewType.ACTIVE_ONLY) -> list[Run]:
    """Return the runs of retrainings, oldest first."""
    found = open_store("citer").runs("tags.kind = 'retraining'", view)
    return sorted(found, key=lambda run: run.info.start_time)


def test_a_retraining_has_a_run_while_its_stages_run(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL", "0.01")
    with failing_run():
        with monitored_run():
            [run] = runs()
            assert run.info.status == "RUNNING"
            assert {"git_sha", "git_dirty"} < run.data.tags.keys()
            retrain(1)
            log_seconds("label@1", 2.5)
            while "system/cpu_utilization_percentage" not in runs()[0].data.metrics:
                time.sleep(0.05)
        register()
    [after] = runs()
    assert (after.info.run_id, after.info.status) == (run.info.run_id, "FINISHED")
    assert after.data.metrics["seconds/label_1"] == 2.5
    assert after.data.tags["version"] == "2"


def test_a_retraining_that_fails_is_seen_with_its_reason(project: Path) -> None:
    for error in (InputError("train.jsonl:3: answer: expected one"), KeyboardInterrupt()):
        with pytest.raises(type(error)), failing_run(), monitored_run():
            raise error
    retrained(1)
    assert [run.info.status for run in runs()] == ["FAILED", "FAILED", "FINISHED"]
    assert [run.data.tags[NOTE] for run in runs()[:2]] == [
        "train.jsonl:3: answer: expected one",
        "KeyboardInterrupt",
    ]


def test_a_run_that_a_kill_left_open_is_marked_by_the_next_retraining(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kill falls on the logging of the second router. Nothing is counted twice."""

    def killed(*_: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(retraining, "_fail", lambda why: None)
        patch.setattr(contents, "log_router", killed)
        with pytest.raises(SystemExit):
            retrained(1)
    assert [run.info.status for run in runs()] == ["RUNNING"]
    retrained(1)
    assert [run.info.status for run in runs()] == ["FAILED", "FINISHED"]
    assert runs()[0].data.tags[NOTE] == KILLED
    store = open_store("citer")
    assert [run.info.status for run in store.runs("tags.kind = 'iteration'")] == ["FINISHED"] * 2
    assert (versions(), holder("champion")) == ([1, 2], 2)
    routers = children(store, runs()[1].info.run_id)
    assert [router.data.metrics["validation_use"] for router in routers] == [1, 2]


def test_a_retraining_that_gave_nothing_new_leaves_no_run(project: Path) -> None:
    retrained(1)
    retrained(1)
    assert len(runs()) == 1
    assert [run.info.status for run in runs(ViewType.DELETED_ONLY)] == ["FINISHED"]
    assert register().startswith("nothing new")


def test_a_store_that_is_lost_during_a_run_ends_no_stage(
    project: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def lose() -> None:
        with failing_run(), monitored_run():
            monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
            log_seconds("label@1", 2.5)
            assert "MLflow at http://127.0.0.1:9: no answer" in caplog.text
            make_store("citer")

    with pytest.raises(TemporaryError):
        lose()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")
    assert open_run(make_store("citer"))
    with failing_run():
        assert not open_run(make_store("citer"))
