"""The MLflow store: MLFLOW_TRACKING_URI, or by default a database in the project's folder."""

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import mlflow
from mlflow import MlflowClient
from mlflow.entities import Run, ViewType
from mlflow.store.db.db_types import DATABASE_ENGINES
from mlflow.utils.file_utils import local_file_uri_to_path

from citer.errors import InputError
from flows.reach import check_store, reported, without_password
from flows.schema import check_schema, has_tables, make_tables, migrate, older

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


def home() -> Path:
    """Return the folder of the embedded store. In a retraining's worktree it is the checkout's."""
    here = Path.cwd()
    return (here.parents[1] if here.parent.name == RETRAININGS.name else Path()) / "mlruns"


def make_store(experiment: str) -> Store:
    """Open the store with its experiment. Both are created if they are missing.

    Raises InputError like `open_store`.
    """
    uri = _uri()
    # A server chooses the artifacts' location itself; a database would choose the current folder.
    location = (home() / "artifacts").absolute().as_uri() if _is_database(uri) else None
    with exclusively(), reported():
        if uri == _embedded():
            make_tables(home() / DATABASE)
        check_store(uri)
        client, known = _opened(uri, experiment)
        return Store(client, known or client.create_experiment(experiment, location))


def open_store(experiment: str) -> Store:
    """Open the store to read what a retraining registered. Nothing is created or written.

    Raises InputError if there is no registry, if the project's folder was moved away from its
    artifacts, if the store does not answer, or if another version of MLflow wrote its tables. Those
    of the project's own database are migrated.
    """
    uri = _uri()
    missing = f"MLflow at {without_password(uri)}: no registry here; `citer run` makes one"
    with reported():
        file = re.fullmatch(r"sqlite[^:]*:///([^?]+).*", uri)  # SQLite would create it
        if file and not Path(file[1]).exists():
            raise InputError(missing)
        check_store(uri)
        if _is_database(uri) and not has_tables(uri):  # MLflow would create them
            raise InputError(missing)
        migrates = uri == _embedded() and older(uri)
        with exclusively() if migrates else nullcontext():
            client, known = _opened(uri, experiment)
    if known is None:
        raise InputError(f"{missing} (no experiment {experiment!r})")
    return Store(client, known)


def _opened(uri: str, experiment: str) -> tuple[MlflowClient, str | None]:
    """Return a client of a store that answers, and the number of the experiment if it exists."""
    if uri == _embedded():
        migrate(home() / DATABASE)
    elif _is_database(uri):
        check_schema(uri)
    mlflow.set_tracking_uri(uri)
    client = MlflowClient()
    known = client.get_experiment_by_name(experiment)
    if known and uri == _embedded():
        _require_artifacts(Path(local_file_uri_to_path(known.artifact_location)))
    return client, known.experiment_id if known else None


def _embedded() -> str:
    return f"sqlite:///{home().absolute()}/{DATABASE}"


def _uri() -> str:
    return _absolute(os.environ.get("MLFLOW_TRACKING_URI") or _embedded())


def store_address() -> str:
    """Return the address of the open store, without a password."""
    return without_password(mlflow.get_tracking_uri())


def _absolute(uri: str) -> str:
    """Return a store's URI; a relative path of SQLite is relative to the project."""
    path = re.fullmatch(r"sqlite:///([^/:].*)", uri)
    return f"sqlite:///{home().absolute().parent / path[1]}" if path else uri


def _is_database(uri: str) -> bool:
    return uri.partition(":")[0].partition("+")[0] in DATABASE_ENGINES


def _require_artifacts(location: Path) -> None:
    """Raise InputError if the folder was moved: MLflow stores absolute paths of its artifacts."""
    if not location.parent.exists():
        was, now = location.parents[1], home().absolute().parent
        raise InputError(
            f"{home()}: the project's folder was {was}, and MLflow still looks for its files"
            f" there; move it back, or: ln -s {now} {was}"
        )


@contextmanager
def exclusively() -> Iterator[None]:
    """Hold the project's lock, which only one process can hold at a time."""
    home().mkdir(exist_ok=True)
    with (home() / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
