"""MLflow's tables: create them, migrate those of an older MLflow, refuse those of a newer one."""

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import mlflow
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from mlflow import db
from mlflow.exceptions import MlflowException
from rich.console import Console
from sqlalchemy import create_engine
from sqlalchemy.exc import SQLAlchemyError

from citer.errors import InputError
from citer.storage.tables import replacing
from flows.reach import StoreError, first_line, without_password

MIGRATIONS = Path(mlflow.__file__).parent / "store/db_migrations"


def make_tables(database: Path) -> None:
    """Create MLflow's tables in a temporary file, then rename it.

    MLflow's own migrations fail if a second client runs them, or after they were killed.
    """
    if not database.exists():
        with replacing(database) as aside:
            _upgrade(aside)


def migrate(database: Path) -> None:
    """Bring a database of an older MLflow to this one's schema, and keep a copy of the old one.

    Raises InputError if a newer MLflow wrote it, or if MLflow cannot migrate it.
    """
    if not (old := older(f"sqlite:///{database.absolute()}")):
        return
    kept = database.with_name(f"{database.stem}-{old}{database.suffix}")
    with _refused(database), replacing(database) as aside:
        _copy(database, kept)
        _copy(database, aside)
        _upgrade(aside)
    text = f"{database}: migrated to the schema of MLflow {mlflow.__version__}; {kept} is the old"
    Console().print(text, highlight=False, soft_wrap=True)


def check_schema(uri: str) -> None:
    """Raise InputError if another MLflow wrote the tables of a database that others may use."""
    if old := older(uri):
        raise InputError(
            f"MLflow at {without_password(uri)}: schema {old} of an older MLflow; expected that of "
            f"{mlflow.__version__}: stop its users, back it up, then run `mlflow db upgrade URI`"
        )


def has_tables(uri: str) -> bool:
    """Return whether a database has MLflow's tables. Raises StoreError if it cannot be read."""
    return _revision(uri) is not None


def older(uri: str) -> str | None:
    """Return the schema's revision if it is an older one, else None.

    A database without tables has none. Raises InputError if this MLflow does not know it, and
    StoreError if it cannot be read.
    """
    found = _revision(uri)
    revisions = [script.revision for script in ScriptDirectory(MIGRATIONS).walk_revisions()]
    if found not in [None, *revisions]:
        raise InputError(
            f"MLflow at {without_password(uri)}: schema {found} is unknown to MLflow "
            f"{mlflow.__version__}; expected an older one: install the MLflow that wrote it"
        )
    return None if found in (None, revisions[0]) else found


def _revision(uri: str) -> str | None:
    engine = create_engine(uri)
    try:
        with engine.connect() as connection:
            return MigrationContext.configure(connection).get_current_revision()
    except SQLAlchemyError as error:
        raise StoreError(f"MLflow at {without_password(uri)}: {first_line(error)}") from None
    finally:
        engine.dispose()


@contextmanager
def _refused(database: Path) -> Iterator[None]:
    try:
        yield
    except (CommandError, MlflowException, SQLAlchemyError, sqlite3.Error) as error:
        problem = "cannot be migrated and is unchanged"
        raise InputError(f"{database}: {problem}: {first_line(error)}") from None


def _copy(database: Path, target: Path) -> None:
    with (
        replacing(target) as aside,
        closing(sqlite3.connect(database)) as source,
        closing(sqlite3.connect(aside)) as copy,
    ):
        source.backup(copy)


def _upgrade(database: Path) -> None:
    logging.getLogger("mlflow.store.db").setLevel(logging.WARNING)  # it logs every migration
    upgrade = ["upgrade", f"sqlite:///{database.absolute()}"]
    db.commands(upgrade, standalone_mode=False)  # `mlflow db upgrade`, in this process
