"""A registry in which a call was interrupted, or something was deleted."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import mlflow
import pytest
from mlflow import MlflowClient

from citer.errors import InputError
from flows.tracking.compare import compare
from flows.tracking.registry import promote
from flows.tracking.restore import restore
from flows.tracking.store import open_store
from tests.flows.project import register, register_new, retrain
from tests.flows.tracking.registered import DATE, NAME, holder, version, versions

pytestmark = pytest.mark.slow


def test_a_roll_back_remains_after_the_runs_are_deleted(registered: Path) -> None:
    register_new(2)
    promote(2)
    store = open_store("citer")
    for run in store.runs(""):
        store.client.delete_run(run.info.run_id)
    again = register()
    assert again.startswith("nothing new: citer-router version 4, registered earlier, is the same")
    assert (versions(), holder("champion"), holder("challenger")) == ([1, 2, 3, 4], 2, 4)
    assert register_new(1).startswith("nothing new: citer-router version 2, registered earlier")
    assert holder("challenger") == 4


def test_a_deleted_version_is_registered_again(registered: Path) -> None:
    MlflowClient().delete_model_version(NAME, "2")
    assert register().startswith("citer-router version 3 promoted: no champion yet")
    assert (versions(), holder("champion")) == ([1, 3], 3)
    MlflowClient().delete_registered_model(NAME)
    assert register().startswith("citer-router version 2 promoted: no champion yet")


def test_a_deleted_experiment_refuses_new_runs_and_keeps_its_champion(registered: Path) -> None:
    store = open_store("citer")
    store.client.delete_experiment(store.experiment_id)
    with pytest.raises(InputError, match="'citer' is deleted in MLflow; `mlflow experiments rest"):
        register()
    promote(1)
    assert holder("champion") == 1


def test_a_champion_whose_run_was_purged_is_reported_and_can_be_replaced(
    registered: Path,
) -> None:
    lost = version(2).run_id
    MlflowClient().delete_run(lost)
    runner = [sys.executable, "-m", "mlflow", "gc", "--run-ids", str(lost)]
    uri = mlflow.get_tracking_uri()
    subprocess.run([*runner, "--backend-store-uri", uri, "--tracking-uri", uri], check=True)
    retrain(2)
    for action in (register, compare, lambda: restore(2)):
        with pytest.raises(InputError, match="version 2: MLflow has no run and answers of it; if"):
            action()
    promote(4)
    register()
    assert holder("champion") == 4


def test_a_version_that_was_registered_by_hand_is_reported(registered: Path) -> None:
    client = MlflowClient()
    made = client.create_model_version("citer-router", source=Path.cwd().as_uri())
    client.set_registered_model_alias("citer-router", "challenger", made.version)
    with pytest.raises(InputError, match=f"version {made.version}: MLflow has no run"):
        compare()


@pytest.mark.parametrize("call", ["set_model_version_tag", "set_registered_model_alias"])
def test_an_interrupted_registration_is_completed_and_recorded_once(
    project: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    retrain(1)
    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, call, cut_short(getattr(MlflowClient, call)))
        with pytest.raises(KeyboardInterrupt):
            register()
    assert holder("champion") is None
    register()
    assert (versions(), holder("champion")) == ([1, 2], 2)
    assert re.fullmatch(f"{DATE} made the champion by the gate", version(2).tags["history"])


def cut_short(real: Callable[..., None]) -> Callable[..., None]:
    """Return a method of the client that is killed, unless it sets the alias of the challenger."""

    def wrapper(client: MlflowClient, name: str, given: str, *rest: str) -> None:
        if given != "challenger":
            raise KeyboardInterrupt
        real(client, name, given, *rest)

    return wrapper
