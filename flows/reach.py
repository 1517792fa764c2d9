"""Whether MLflow's store can be reached: asked once, where MLflow itself retries for minutes."""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager

import mlflow
import requests
from mlflow.exceptions import MlflowException
from mlflow.utils.credentials import get_default_host_creds
from sqlalchemy import create_engine, inspect
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from citer.errors import InputError

ANSWER_SECONDS = 10
DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
EXPECTED = "expected a server's http://HOST:PORT, or a database such as sqlite:////PATH/mlflow.db"
# Each logs, with a traceback, an error that is raised as well.
LOGGERS = ("mlflow.store.db.utils", "mlflow.store.db_migrations")


class StoreError(InputError):
    """MLflow's store cannot be used; it may be the trouble of a moment, so a flow tries again."""


def check_store(uri: str) -> None:
    """Raise StoreError where the server or database at `uri` does not answer.

    Raises InputError where `uri` is no address of either.
    """
    try:
        if uri.startswith("http"):
            _ask(uri)
        elif uri.startswith(DATABASES):
            inspect(create_engine(uri)).has_table("alembic_version")
        elif "://" not in uri and not uri.startswith("databricks"):
            raise ValueError(EXPECTED)
    except requests.RequestException as error:
        said = f"no answer ({type(error).__name__}), expected a running MLflow server"
        raise StoreError(f"MLflow at {without_password(uri)}: {said}") from None
    except (ArgumentError, ImportError, ValueError) as error:
        raise InputError(f"MLflow at {without_password(uri)}: {_first_line(error)}") from None
    except SQLAlchemyError as error:
        raise StoreError(f"MLflow at {without_password(uri)}: {_first_line(error)}") from None


def _ask(uri: str) -> None:
    """Any answer is one; certificates are those that MLflow's own client would use."""
    creds = get_default_host_creds(uri)
    page = f"{uri.rstrip('/')}/health"
    cert = creds.client_cert_path
    requests.get(page, timeout=ANSWER_SECONDS, verify=creds.verify, cert=cert)


@contextmanager
def reported() -> Iterator[None]:
    """Say in one line what MLflow cannot do. Raises StoreError in place of its exceptions."""
    for logger in LOGGERS:
        logging.getLogger(logger).setLevel(logging.CRITICAL)
    try:
        yield
    except MlflowException as error:
        raise StoreError(
            f"MLflow at {without_password(mlflow.get_tracking_uri())}: {_first_line(error)}"
        ) from error


def without_password(uri: str) -> str:
    """A store's URI as it may be printed."""
    return re.sub(r"(?<=//)[^/]*@", "…@", uri)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
