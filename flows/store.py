"""The MLflow store: embedded in the project's folder, or the one that MLFLOW_TRACKING_URI names."""

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import mlflow
from mlflow import MlflowClient, db
from mlflow.entities import Run, ViewType
from mlflow.utils.file_utils import local_file_uri_to_path

from citer.errors import InputError
from citer.io import replacing
from flows.reach import check_store, reported

HOME = Path("mlruns")


@dataclass(frozen=True)
class Store:
    """A client, and the experiment that holds this project's runs."""

    client: MlflowClient
    experiment_id: str

    def runs(self, query: str, view: int = ViewType.ACTIVE_ONLY) -> list[Run]:
        return list(self.client.search_runs([self.experiment_id], query, view))


def open_store(experiment: str) -> Store:
    """The store with its experiment; both are made where they are missing.

    Raises InputError where the project's folder has moved away from its artifacts, and where the
    store does not answer.
    """
    embedded = f"sqlite:///{HOME.absolute()}/mlflow.db"
    uri = os.environ.get("MLFLOW_TRACKING_URI") or embedded
    # A server decides itself where artifacts go.
    location = (HOME / "artifacts").absolute().as_uri() if uri == embedded else None
    with exclusively(), reported():
        if uri == embedded:
            make_tables(HOME / "mlflow.db")
        check_store(uri)
        mlflow.set_tracking_uri(uri)
        client = MlflowClient()
        found = client.get_experiment_by_name(experiment)
        if found and uri == embedded:
            _require_artifacts(Path(local_file_uri_to_path(found.artifact_location)))
        made = found.experiment_id if found else client.create_experiment(experiment, location)
    return Store(client, made)


def _require_artifacts(location: Path) -> None:
    """MLflow keeps absolute paths: would log to where the folder was, and find nothing there."""
    if not location.parent.exists():
        was, now = location.parents[1], Path.cwd()
        raise InputError(
            f"{HOME}: this folder was {was}, where MLflow still looks for what it keeps; move it"
            f" back, or: ln -s {now} {was}"
        )


@contextmanager
def exclusively() -> Iterator[None]:
    """One process of this project at a time."""
    HOME.mkdir(exist_ok=True)
    with (HOME / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def make_tables(database: Path) -> None:
    """Aside: MLflow's migrations stand neither a second client nor a kill half way."""
    if database.exists():
        return
    logging.getLogger("mlflow.store.db").setLevel(logging.WARNING)  # it tells of every upgrade
    with replacing(database) as aside:
        upgrade = ["upgrade", f"sqlite:///{aside.absolute()}"]
        db.commands(upgrade, standalone_mode=False)  # `mlflow db upgrade`, in this process
