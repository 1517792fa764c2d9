"""Check whether MLflow's store answers, with one request. MLflow itself retries for minutes."""

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

from citer.errors import InputError, TemporaryError

ANSWER_SECONDS = 10
DATABASES = ("sqlite", "postgresql", "mysql", "mssql")
EXPECTED = "expected a server's http://HOST:PORT, or a database such as sqlite:////PATH/mlflow.db"
# These log a traceback of errors that they also raise.
LOGGERS = ("mlflow.store.db.utils", "mlflow.store.db_migrations")


class StoreError(TemporaryError):
    """MLflow's store does not work."""


def check_store(uri: str) -> None:
    """Raise StoreError if the server or database at `uri` does not answer.

    Raises InputError if `uri` is not the address of a server or database.
    """
    try:
        if uri.startswith("http"):
            _request_health(uri)
        elif uri.startswith(DATABASES):
            inspect(create_engine(uri)).has_table("alembic_version")
        elif "://" not in uri and not uri.startswith("databricks"):
            raise ValueError(EXPECTED)
    except requests.RequestException as error:
        problem = f"no answer ({type(error).__name__}), expected a running MLflow server"
        raise StoreError(f"MLflow at {without_password(uri)}: {problem}") from None
    except (ArgumentError, ImportError, ValueError) as error:
        raise InputError(f"MLflow at {without_password(uri)}: {first_line(error)}") from None
    except SQLAlchemyError as error:
        raise StoreError(f"MLflow at {without_password(uri)}: {first_line(error)}") from None


def _request_health(uri: str) -> None:
    """Request the health page with the certificates of MLflow's client. Accept any status."""
    creds = get_default_host_creds(uri)
    page = f"{uri.rstrip('/')}/health"
    cert = creds.client_cert_path
    requests.get(page, timeout=ANSWER_SECONDS, verify=creds.verify, cert=cert)


@contextmanager
def reported() -> Iterator[None]:
    """Turn MLflow's exceptions into StoreError, with their first line as the message."""
    for logger in LOGGERS:
        logging.getLogger(logger).setLevel(logging.CRITICAL)
    try:
        yield
    except MlflowException as error:
        raise StoreError(
            f"MLflow at {without_password(mlflow.get_tracking_uri())}: {first_line(error)}"
        ) from error


def without_password(uri: str) -> str:
    """Return a store's URI without its user and password, so that it can be printed."""
    return re.sub(r"(?<=//)[^/]*@", "…@", uri)


def first_line(error: Exception) -> str:
    """Return what an error says, without advice, SQL and what two HTTP libraries add."""
    return str(error).strip().partition("\n")[0].partition(" with exception ")[0]
