"""The MLflow store: MLFLOW_TRACKING_URI, or by default a database in the project's folder.

Open it, ask whether it answers, create its tables, and refuse those of another MLflow.
"""

import json
import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlflow
import requests
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from mlflow import MlflowClient, db
from mlflow.entities import Experiment, LifecycleStage, Metric, Param, Run, ViewType
from mlflow.exceptions import MlflowException
from mlflow.tracking.registry import UnsupportedModelRegistryStoreURIException
from mlflow.utils.credentials import get_default_host_creds
from mlflow.utils.file_utils import local_file_uri_to_path
from sqlalchemy import NullPool, create_engine
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from citer.errors import InputError, TemporaryError, without_password
from citer.storage.tables import replacing
from flows.dvc_commands import locked

RETRAININGS = Path(".retrain")  # the worktrees of retrainings
DATABASE = "mlflow.db"
ANSWER_SECONDS = 10
DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
EXPECTED = "expected a server's http://HOST:PORT, or a database such as sqlite:////PATH/mlflow.db"
MIGRATIONS = Path(mlflow.__file__).parent / "store/db_migrations"
# These log a traceback of errors that they also raise.
LOGGERS = ("mlflow.store.db.utils", "mlflow.store.db_migrations")
ERRORS = (MlflowException, requests.RequestException)  # the latter if a server refuses a file


@dataclass(frozen=True)
class Store:
    """An MLflow client, and the experiment that holds this project's runs."""

    client: MlflowClient
    experiment_id: str

    def runs(self, query: str, view: int = ViewType.ACTIVE_ONLY) -> list[Run]:
        return mlflow.search_runs([self.experiment_id], query, view, output_format="list")

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
    location = (home() / "artifacts").absolute().as_uri() if uri.startswith(DATABASES) else None
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
            problem = f"the project's folder was {was}, and MLflow still looks for its files there"
            remedy = f"move it back, or: ln -s {home().absolute().parent} {was}"
            raise InputError(f"{home()}: {problem}; {remedy}")
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


def exclusively() -> AbstractContextManager[None]:
    """Hold the project's lock, which only one process can hold at a time."""
    return locked(home() / ".lock", "another process", logging.getLogger(__name__).info)


@contextmanager
def reported() -> Iterator[None]:
    """Turn MLflow's `ERRORS` into TemporaryError, with their first line as the message."""
    for logger in LOGGERS:
        logging.getLogger(logger).setLevel(logging.CRITICAL)
    try:
        yield
    except UnsupportedModelRegistryStoreURIException:
        raise InputError(f"{named(mlflow.get_tracking_uri())}: {EXPECTED}") from None
    except ERRORS as error:
        raise TemporaryError(f"{named(mlflow.get_tracking_uri())}: {_first_line(error)}") from error


def named(uri: str) -> str:
    return f"MLflow at {without_password(uri)}"


def _first_line(error: Exception) -> str:
    """Return what an error says, without advice, SQL, passwords and what HTTP libraries add."""
    line = str(error).strip().partition("\n")[0]
    return without_password(line.partition(" with exception ")[0])


def check_store(uri: str) -> bool:
    """Return whether a store has tables of MLflow, as each server has.

    Raises TemporaryError if the server or database does not answer one request: MLflow itself
    retries for minutes. Raises InputError if `uri` is not an address of either, or if another
    MLflow wrote the tables of a database.
    """
    try:
        if uri.startswith(DATABASES):
            return _has_tables(uri)
        if uri.startswith("http"):
            creds = get_default_host_creds(uri)
            given = {"verify": creds.verify, "cert": creds.client_cert_path}
            requests.get(f"{uri.rstrip('/')}/health", timeout=ANSWER_SECONDS, **given)
        elif "://" not in uri and not uri.startswith("databricks"):
            raise ValueError(EXPECTED)
        return True
    except requests.RequestException as error:
        if isinstance(error, ValueError):  # a wrong URL; what it says may have a part of a password
            raise InputError(f"{named(uri)}: {EXPECTED}") from None
        problem = f"no answer ({type(error).__name__}), expected a running MLflow server"
        raise TemporaryError(f"{named(uri)}: {problem}") from None
    except (ArgumentError, ImportError, ValueError) as error:
        raise InputError(f"{named(uri)}: {_first_line(error)}") from None
    except SQLAlchemyError as error:
        raise TemporaryError(f"{named(uri)}: {_first_line(error)}") from None


def _has_tables(uri: str) -> bool:
    """Return whether a database has tables of MLflow. Raises ValueError if another MLflow's."""
    with create_engine(uri, poolclass=NullPool).connect() as connection:
        found = MigrationContext.configure(connection).get_current_revision()
    expected = ScriptDirectory(MIGRATIONS).get_current_head()
    if found not in (None, expected):
        upgrade = f"`mlflow db upgrade {without_password(uri)}`"
        raise ValueError(
            f"schema {found}, expected {expected} of MLflow {mlflow.__version__}; if an older one "
            f"wrote it, stop its users, back it up, then run {upgrade}; if a newer one did, "
            "install that"
        )
    return found is not None


def make_tables(database: Path) -> None:
    """Create MLflow's tables in a temporary file, then rename it.

    MLflow's own migrations fail if a second client runs them, or after they were killed.
    """
    if not database.exists():
        with replacing(database) as aside:
            logging.getLogger("mlflow.store.db").setLevel(logging.WARNING)  # not every migration
            upgrade = ["upgrade", f"sqlite:///{aside.absolute()}"]
            db.commands(upgrade, standalone_mode=False)  # `mlflow db upgrade`, in this process
