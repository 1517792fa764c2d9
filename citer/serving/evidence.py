"""Evidence about promises: a file of SQLite, or Postgres for servers on several machines.

A shadow answer is one row, written in one transaction: a killed server loses the answer that it was
about to write, and counts none twice. The number of a row orders the answers of all servers.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

from citer.errors import InputError, TemporaryError, without_password
from citer.serving.promise import Entry

PLACE = "CITER_EVIDENCE"  # an environment variable, in place of a file
WAIT = 30  # seconds for another server's transaction
NUMBER = {False: "INTEGER PRIMARY KEY AUTOINCREMENT", True: "BIGSERIAL PRIMARY KEY"}
TABLES = (
    """CREATE TABLE IF NOT EXISTS entries (number {number}, version TEXT NOT NULL, at TEXT NOT NULL,
    rule TEXT NOT NULL, lost INTEGER NOT NULL, "limit" DOUBLE PRECISION NOT NULL)""",
    "CREATE INDEX IF NOT EXISTS of_version ON entries (version, number)",
    "CREATE TABLE IF NOT EXISTS promises (version TEXT PRIMARY KEY, promise TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS told (number BIGINT PRIMARY KEY)",
)
# Postgres numbers a row before it is committed. One at a time, so that nobody sees a later one
# first, and two servers do not make the tables at once.
ALONE = "SELECT pg_advisory_xact_lock(0)"


def evidence_place(file: Path) -> str:
    """Return where evidence is kept: `$CITER_EVIDENCE`, or a file."""
    return os.environ.get(PLACE) or str(file)


def is_there(place: str) -> bool:
    """Return whether there can be evidence: a file exists, or it is a database of Postgres."""
    return is_address(place) or Path(place).exists()


def is_address(place: str) -> bool:
    """Return whether evidence is kept in Postgres."""
    return place.startswith(("postgresql://", "postgres://"))


class Evidence:
    """The entries of each version. Threads may share it.

    `place` is a file, or an address `postgresql://USER@HOST/DATABASE`. Raises InputError if it
    cannot be used.
    """

    def __init__(self, place: Path | str) -> None:
        self.place, self._postgres = str(place), is_address(str(place))
        self._driver: Any = sqlite3  # its functions are those of DB-API (PEP 249)
        if self._postgres:
            try:
                self._driver = import_module("psycopg2")  # not everybody needs it
            except ImportError:
                raise self._unusable("pip install psycopg2-binary") from None
        with self._opened() as cursor:
            if not self._postgres:
                cursor.execute("PRAGMA journal_mode = WAL")
            for table in TABLES:
                cursor.execute(table.format(number=NUMBER[self._postgres]))

    def declare(self, version: str, promise: str, before: str) -> None:
        """Store a version's promise, as JSON, for its servers and for those who only read.

        It takes the place of `before` alone, not of what another server has stored meanwhile.
        """
        replaced = "DO UPDATE SET promise = excluded.promise WHERE promises.promise = ?"
        statement = f"INSERT INTO promises VALUES (?, ?) ON CONFLICT (version) {replaced}"
        self._rows(statement, version, promise, before)

    def add(self, version: str, rule: str, lost: bool, limit: float) -> int:
        """Store a shadow answer, or without a rule a step forward. Returns its number."""
        statement = 'INSERT INTO entries (version, at, rule, lost, "limit") VALUES (?, ?, ?, ?, ?)'
        values = version, now(), rule, int(lost), limit
        [[number]] = self._rows(f"{statement} RETURNING number", *values)
        return int(number)

    def after(self, version: str, number: int = 0) -> list[Entry]:
        """Return a version's entries after this number, in order."""
        statement = (
            'SELECT number, at, rule, lost, "limit" FROM entries'
            " WHERE version = ? AND number > ? ORDER BY number"
        )
        rows = self._rows(statement, version, number)
        return [Entry(n, at, rule, bool(lost), limit) for n, at, rule, lost, limit in rows]

    def claim(self, number: int) -> bool:
        """Return whether the caller is the first to tell of the step at this entry."""
        statement = "INSERT INTO told VALUES (?) ON CONFLICT DO NOTHING RETURNING number"
        return bool(self._rows(statement, number))

    def promises(self) -> dict[str, str]:
        """Return the promise of each version, as JSON."""
        return dict(self._rows("SELECT version, promise FROM promises ORDER BY version"))

    def _rows(self, statement: str, *values: object) -> list[Any]:
        """Execute a statement in a transaction of its own. Return its rows."""
        with self._opened() as cursor:
            cursor.execute(statement.replace("?", "%s") if self._postgres else statement, values)
            return cursor.fetchall() if cursor.description else []

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        """Yield a cursor, whose changes become one transaction."""
        try:
            with closing(self._connection()) as database, database:
                yield database.cursor()
        except (self._driver.Error, OSError) as error:
            is_lost = isinstance(error, self._driver.OperationalError) and self._postgres
            passes = is_lost or "locked" in str(error)
            kind = TemporaryError if passes else InputError
            raise self._unusable(str(error).strip(), kind) from None

    def _connection(self) -> Any:
        if self._postgres:
            options = f"-c lock_timeout={1000 * WAIT}"
            database = self._driver.connect(self.place, connect_timeout=WAIT, options=options)
            database.cursor().execute(ALONE)
        else:
            Path(self.place).parent.mkdir(parents=True, exist_ok=True)
            database = self._driver.connect(self.place, timeout=WAIT)
            database.execute("PRAGMA synchronous = FULL")
        return database

    def _unusable(self, reason: str, kind: type[InputError] = InputError) -> InputError:
        said = f"{self.place}: no evidence can be kept here: {reason}"
        return kind(without_password(said))


def now() -> str:
    """Return the time in UTC, for people."""
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}"


def hours_since(at: str) -> float:
    """Return how long ago a time was, as `now` writes it."""
    return (datetime.now(UTC) - datetime.fromisoformat(f"{at}Z")).total_seconds() / 3600
