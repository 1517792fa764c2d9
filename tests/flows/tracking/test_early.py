"""Routers that are registered while the retraining goes on: after kills, and at its end."""

from pathlib import Path
from typing import Any

import mlflow
import pytest
from mlflow import MlflowClient

from citer.stages import paths
from citer.storage.tables import write_text
from flows.dvc_commands import dvc
from flows.tracking import contents, registry
from flows.tracking.compare import compare
from flows.tracking.contents import Iteration, children
from flows.tracking.registry import register_run, run_of
from flows.tracking.restore import restore
from flows.tracking.retraining import failing_run, monitored_run
from flows.tracking.store import open_store
from tests.flows.project import register, retrain
from tests.flows.tracking.registered import CHAMPION, holder, version, versions

State = tuple[list[int], int | None, int | None, list[str]]


def state() -> State:
    """Return the versions, who holds the aliases, and the routers that were logged."""
    logged = open_store("citer").runs("tags.kind = 'iteration'")
    numbers = [f"{run.data.tags['iteration']} {run.info.status}" for run in logged]
    return versions(), holder("champion"), holder("challenger"), sorted(numbers)


def sentence(number: int) -> str:
    done = register_run([], Iteration(number))
    assert done
    return done.sentence


def test_a_run_that_is_stopped_leaves_the_best_so_far(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    later = [paths.PAGE, *(paths.transcript(k) for k in (1, 2)), *map(paths.preferences, (1, 2))]

    def stopped() -> None:
        with failing_run(), monitored_run():
            retrain(1)
            for file in later:
                file.unlink()
            assert sentence(0).startswith("citer-router version 1 promoted: ")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert state() == ([1], 1, 1, ["0 FINISHED"])
    assert version(1).tags["rule"] == "risk 0.75 audit 0.1 by entropy"
    assert mlflow.pyfunc.load_model(CHAMPION).predict(["1 + 1?"]).error[0] is None
    compare()
    write_text(Path("dvc.lock"), "schema: '2.0'\n")
    restore(1)
    assert "dvc.lock" not in dvc("status")
    assert Path("dvc.lock").read_text().endswith("# 1\n")
    assert "Version 1 restored" in capsys.readouterr().out


def test_the_end_takes_what_is_registered_and_adds_the_rest(project: Path) -> None:
    with failing_run():
        with monitored_run():
            retrain(1)
            early = [sentence(0), sentence(1)]
        last = register()
    assert [each[:31] for each in (*early, last)] == [
        f"citer-router version {number} promoted" for number in (1, 2, 3)
    ]
    assert state() == ([1, 2, 3], 3, 3, ["0 FINISHED", "1 FINISHED", "2 FINISHED"])
    store = open_store("citer")
    [parent] = store.runs("tags.kind = 'retraining'")
    assert (parent.info.status, parent.data.tags["version"]) == ("FINISHED", "3")
    below = children(store, parent.info.run_id)
    assert [run.data.tags["iteration"] for run in below] == ["0", "1", "2"]
    for number in (1, 2, 3):
        mlflow.artifacts.download_artifacts(f"runs:/{version(number).run_id}/{paths.PAGE.name}")
    mlflow.artifacts.download_artifacts(f"runs:/{version(2).run_id}/report/tokens.json")
    before = state()
    assert register().startswith("nothing new")
    assert register_run([], Iteration(0)) is None  # no run is open
    assert state() == before


def killed(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("place", "name"),
    [
        (contents, "log_router"),
        (registry, "_new_version"),
        (MlflowClient, "create_model_version"),
        (MlflowClient, "set_model_version_tag"),
        (registry, "_crown"),
        (MlflowClient, "set_registered_model_alias"),
    ],
)
def test_an_early_registration_that_was_killed_is_completed_by_the_next_run(
    project: Path, monkeypatch: pytest.MonkeyPatch, place: Any, name: str
) -> None:
    def stopped() -> None:
        with monkeypatch.context() as patch, failing_run(), monitored_run():
            patch.setattr(place, name, killed)
            register_run([], Iteration(0))

    retrain(1)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            stopped()
    with failing_run():
        with monitored_run():
            sentence(0)
            assert state() == ([1], 1, 1, ["0 FINISHED"])
            assert run_of(version(1)).data.metrics["validation_use"] == 1
        register()
    assert state() == ([1, 2, 3], 3, 3, ["0 FINISHED", "1 FINISHED", "2 FINISHED"])


def test_a_choice_that_was_registered_before_is_not_judged_again(project: Path) -> None:
    for _ in range(2):
        with failing_run():
            with monitored_run():
                retrain(1)
                again = sentence(0)
            register()
    assert again.startswith("nothing new: citer-router version 1, registered earlier, is the same")
    assert again.endswith("; now the champion is version 3")
    assert len(open_store("citer").runs("tags.kind = 'retraining'")) == 1


def test_a_new_choice_stays_though_the_routers_are_known(registered: Path) -> None:
    with failing_run():
        with monitored_run():
            sentence(0)
        assert register().startswith("nothing new")
    kept = run_of(version(3))
    assert kept.info.lifecycle_stage == "active"
    mlflow.artifacts.download_artifacts(f"runs:/{kept.info.run_id}/{paths.PAGE.name}")
    assert len(open_store("citer").runs("tags.kind = 'retraining'")) == 2
