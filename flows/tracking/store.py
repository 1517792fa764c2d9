"""The MLflow store: MLFLOW_TRACKING_URI, or by default a database in the project's folder."""

import fcntl
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import mlflow
from mlflow import MlflowClient
from mlflow.entities import Experiment, LifecycleStage, Metric, Param, Run, ViewType
from mlflow.utils.file_utils import local_file_uri_to_path

from citer.errors import InputError
from flows.tracking.database import (
    check_store,
    is_database,
    make_tables,
    named,
    reported,
    without_password,
)

RETRAININGS = Path(".retrain")  # the worktrees of retrainings
DATABASE = "mlflow.db"
CHAMPION, CHALLENGER = "champion", "challenger"  # aliases of versions


@dataclass(frozen=True)
class Store:
    """An MLflow client, and the experiment that holds this project's runs."""

    client: MlflowClient
    experiment_id: str

    def runs(self, query: str, view: int = ViewType.ACTIVE_ONLY) -> list[Run]:
        found = mlflow.search_runs([self.experiment_id], query, view, output_format="list")
        return cast(list[Run], found)  # of all pages

    def log(
        self,
        run: Run,
        params: Mapping[str, Any],
        numbers: Mapping[str, Any],
        series: Mapping[str, Sequence[float]] | None = None,
    ) -> None:
        """Log parameters, every number, and series, in as few calls as MLflow allows.

        What could not be measured is left out of `numbers`. A series has the steps 1, 2, … All have
        the time of the run's start, so that a repeated call adds nothing.
        """
        at = run.info.start_time
        single = [Metric(k, v, at, 0) for k, v in numbers.items() if isinstance(v, int | float)]
        by_step = [
            Metric(key, value, at, step)
            for key, values in (series or {}).items()
            for step, value in enumerate(values, start=1)
        ]
        texts = [Param(k, v if isinstance(v, str) else json.dumps(v)) for k, v in params.items()]
        self.client.log_batch(run.info.run_id, metrics=[*single, *by_step], params=texts)


def home() -> Path:
    """Return the folder of the embedded store. In a retraining's worktree it is the checkout's."""
    here = Path.cwd()
    return (here.parents[1] if here.parent.name == RETRAININGS.name else Path()) / "mlruns"


def make_store(experiment: str) -> Store:
    """Open the store with its experiment. Both are created if they are missing.

    Raises InputError like `open_store`, or if the experiment is deleted: MLflow keeps its name.
    """
    uri = _uri()
    # A server chooses the artifacts' location itself; a database would choose the current folder.
    location = (home() / "artifacts").absolute().as_uri() if is_database(uri) else None
    with exclusively(), reported():
        if uri == _embedded():
            make_tables(home() / DATABASE)
        check_store(uri)
        client, known = _opened(uri, experiment)
        if known and known.lifecycle_stage == LifecycleStage.DELETED:  # it accepts no runs
            remedy = f"`mlflow experiments restore --experiment-id {known.experiment_id}`"
            raise InputError(f"register.experiment: {experiment!r} is deleted in MLflow; {remedy}")
        number = known and known.experiment_id
        return Store(client, number or client.create_experiment(experiment, location))


def open_store(experiment: str) -> Store:
    """Open the store to read what a retraining registered. Nothing is created or written.

    Raises InputError if there is no registry, if the project's folder was moved away from its
    artifacts, if the store does not answer, or if another version of MLflow wrote its tables.
    """
    uri = _uri()
    missing = f"{named(uri)}: no registry here; `citer run` makes one"
    with reported():
        file = re.fullmatch(r"sqlite[^:]*:///([^?]+).*", uri)  # SQLite would create it
        if file and not Path(file[1]).exists():
            raise InputError(missing)
        if not check_store(uri):  # MLflow would create the tables
            raise InputError(missing)
        client, known = _opened(uri, experiment)
    if known is None:
        raise InputError(f"{missing} (no experiment {experiment!r})")
    return Store(client, known.experiment_id)


def _opened(uri: str, experiment: str) -> tuple[MlflowClient, Experiment | None]:
    """Return a client of a store that answers, and the experiment if it exists."""
    mlflow.set_tracking_uri(uri)
    client = MlflowClient()
    known = client.get_experiment_by_name(experiment)
    if known and uri == _embedded():  # MLflow stores absolute paths of its artifacts
        was = Path(local_file_uri_to_path(known.artifact_location)).parents[1]
        if not (was / "mlruns").exists():
            raise InputError(
                f"{home()}: the project's folder was {was}, and MLflow still looks for its files"
                f" there; move it back, or: ln -s {home().absolute().parent} {was}"
            )
    return client, known


def _embedded() -> str:
    return f"sqlite:///{home().absolute()}/{DATABASE}"


def _uri() -> str:
    """Return the store's URI; a relative path of SQLite is relative to the project."""
    uri = os.environ.get("MLFLOW_TRACKING_URI") or _embedded()
    path = re.fullmatch(r"sqlite:///([^/:].*)", uri)
    return f"sqlite:///{home().absolute().parent / path[1]}" if path else uri


def store_address() -> str:
    """Return the address of the open store, without a password."""
    return without_password(mlflow.get_tracking_uri())


@contextmanager
def exclusively() -> Iterator[None]:
    """Hold the project's lock, which only one process can hold at a time."""
    home().mkdir(exist_ok=True)
    with (home() / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
