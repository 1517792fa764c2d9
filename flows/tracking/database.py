"""Whether MLflow's store answers. Its tables: create them, refuse those of another MLflow."""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import mlflow
import requests
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from mlflow import db
from mlflow.exceptions import MlflowException
from mlflow.utils.credentials import get_default_host_creds
from sqlalchemy import NullPool, create_engine
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from citer.errors import InputError, TemporaryError
from citer.storage.tables import replacing

ANSWER_SECONDS = 10
DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
EXPECTED = "expected a server's http://HOST:PORT, or a database such as sqlite:////PATH/mlflow.db"
MIGRATIONS = Path(mlflow.__file__).parent / "store/db_migrations"
# These log a traceback of errors that they also raise.
LOGGERS = ("mlflow.store.db.utils", "mlflow.store.db_migrations")


class StoreError(TemporaryError):
    """MLflow's store does not work."""


@contextmanager
def reported() -> Iterator[None]:
    """Turn MLflow's exceptions into StoreError, with their first line as the message."""
    for logger in LOGGERS:
        logging.getLogger(logger).setLevel(logging.CRITICAL)
    try:
        yield
    except MlflowException as error:
        raise StoreError(f"{named(mlflow.get_tracking_uri())}: {_first_line(error)}") from error


def named(uri: str) -> str:
    return f"MLflow at {without_password(uri)}"


def without_password(uri: str) -> str:
    """Return a store's URI without its user and password, so that it can be printed."""
    return re.sub(r"(?<=//)[^/]*@", "…@", uri)


def _first_line(error: Exception) -> str:
    """Return what an error says, without advice, SQL and what two HTTP libraries add."""
    return str(error).strip().partition("\n")[0].partition(" with exception ")[0]


def is_database(uri: str) -> bool:
    return uri.startswith(DATABASES)


def check_store(uri: str) -> bool:
    """Return whether a store has tables of MLflow, as each server has.

    Raises StoreError if the server or database does not answer one request: MLflow itself retries
    for minutes. Raises InputError if `uri` is not an address of either, or if another MLflow wrote
    the tables of a database.
    """
    revision = _ask(uri)
    if is_database(uri):
        _check_schema(uri, revision)
        return revision is not None
    return True


def _ask(uri: str) -> str | None:
    """Send one request. Return the revision of a database's schema, if MLflow has tables there."""
    try:
        if is_database(uri):
            with create_engine(uri, poolclass=NullPool).connect() as connection:
                return MigrationContext.configure(connection).get_current_revision()
        if uri.startswith("http"):
            _request_health(uri)
        elif "://" not in uri and not uri.startswith("databricks"):
            raise ValueError(EXPECTED)
        return None
    except requests.RequestException as error:
        problem = f"no answer ({type(error).__name__}), expected a running MLflow server"
        raise StoreError(f"{named(uri)}: {problem}") from None
    except (ArgumentError, ImportError, ValueError) as error:
        raise InputError(f"{named(uri)}: {_first_line(error)}") from None
    except SQLAlchemyError as error:
        raise StoreError(f"{named(uri)}: {_first_line(error)}") from None


def _request_health(uri: str) -> None:
    """Request the health page with the certificates of MLflow's client. Accept any status."""
    creds = get_default_host_creds(uri)
    page = f"{uri.rstrip('/')}/health"
    cert = creds.client_cert_path
    requests.get(page, timeout=ANSWER_SECONDS, verify=creds.verify, cert=cert)


def make_tables(database: Path) -> None:
    """Create MLflow's tables in a temporary file, then rename it.

    MLflow's own migrations fail if a second client runs them, or after they were killed.
    """
    if not database.exists():
        with replacing(database) as aside:
            logging.getLogger("mlflow.store.db").setLevel(logging.WARNING)  # not every migration
            upgrade = ["upgrade", f"sqlite:///{aside.absolute()}"]
            db.commands(upgrade, standalone_mode=False)  # `mlflow db upgrade`, in this process


def _check_schema(uri: str, found: str | None) -> None:
    """Raise InputError if a schema is another MLflow's."""
    newest, *older = [each.revision for each in ScriptDirectory(MIGRATIONS).walk_revisions()]
    if found in older:
        raise InputError(
            f"{named(uri)}: schema {found} of an older MLflow; expected that of "
            f"{mlflow.__version__}: stop its users, back it up, then run `mlflow db upgrade "
            f"{without_password(uri)}`"
        )
    if found not in (None, newest):
        raise InputError(
            f"{named(uri)}: schema {found} is unknown to MLflow "
            f"{mlflow.__version__}; expected an older one: install the MLflow that wrote it"
        )
