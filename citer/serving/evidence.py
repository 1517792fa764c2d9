"""Evidence about promises on disk: an SQLite database, which servers of one machine share.

A shadow answer is one row, written in one transaction: a killed server loses the answer that it was
about to write, and counts none twice. The number of a row orders the answers of all servers.
"""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from citer.errors import InputError
from citer.serving.promise import Entry

WAIT = 30.0  # seconds for another server's transaction
TABLES = """
CREATE TABLE IF NOT EXISTS entries (
    number INTEGER PRIMARY KEY AUTOINCREMENT, version TEXT NOT NULL, at TEXT NOT NULL,
    rule TEXT NOT NULL, lost INTEGER NOT NULL, "limit" REAL NOT NULL);
CREATE INDEX IF NOT EXISTS of_version ON entries (version, number);
CREATE TABLE IF NOT EXISTS promises (version TEXT PRIMARY KEY, promise TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS told (number INTEGER PRIMARY KEY);
CREATE TABLE IF NOT EXISTS starts (number INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL);
"""


class Evidence:
    """The entries of each version. Threads may share it. Raises InputError for an unusable file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._reported():
            path.parent.mkdir(parents=True, exist_ok=True)
            with self._open() as database:
                database.execute("PRAGMA journal_mode = WAL")
                database.executescript(TABLES)

    def start(self) -> int:
        """Return a number that no earlier start of a server got."""
        return self._insert("INSERT INTO starts (at) VALUES (?)", now())

    def declare(self, version: str, promise: str) -> None:
        """Store a version's promise, as JSON, for those who read the evidence alone."""
        self._insert("INSERT OR REPLACE INTO promises VALUES (?, ?)", version, promise)

    def add(self, version: str, rule: str, lost: bool, limit: float) -> int:
        """Store a shadow answer. Returns its number."""
        values = version, now(), rule, int(lost), limit
        statement = 'INSERT INTO entries (version, at, rule, lost, "limit") VALUES (?, ?, ?, ?, ?)'
        return self._insert(statement, *values)

    def step_forward(self, version: str) -> int:
        """Store that a person puts the rule before the one in force into force again."""
        return self.add(version, "", False, 0.5)

    def after(self, version: str, number: int = 0) -> list[Entry]:
        """Return a version's entries after this number, in order."""
        statement = (
            'SELECT number, at, rule, lost, "limit" FROM entries'
            " WHERE version = ? AND number > ? ORDER BY number"
        )
        with self._reported(), self._open() as database:
            rows = database.execute(statement, (version, number)).fetchall()
        return [Entry(n, at, rule, bool(lost), limit) for n, at, rule, lost, limit in rows]

    def claim(self, number: int) -> bool:
        """Return whether the caller is the first to tell of the step at this entry."""
        with self._reported(), self._open() as database:
            statement = "INSERT OR IGNORE INTO told VALUES (?)"
            return bool(database.execute(statement, (number,)).rowcount)

    def promises(self) -> dict[str, str]:
        """Return the promise of each version, as JSON."""
        with self._reported(), self._open() as database:
            return dict(database.execute("SELECT version, promise FROM promises ORDER BY version"))

    def _insert(self, statement: str, *values: object) -> int:
        with self._reported(), self._open() as database:
            return int(database.execute(statement, values).lastrowid or 0)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection, whose changes become one transaction."""
        with closing(sqlite3.connect(self.path, timeout=WAIT)) as database, database:
            database.execute("PRAGMA synchronous = FULL")
            yield database

    @contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise InputError(f"{self.path}: no evidence can be kept here: {error}") from None


def now() -> str:
    """Return the time in UTC, for people."""
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}"
