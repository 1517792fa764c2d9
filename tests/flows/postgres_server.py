"""A real Postgres for tests, if `initdb` is on PATH."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg2
import pytest

from tests.flows.servers import free_port

NEEDED = pytest.mark.skipif(
    not shutil.which("initdb"), reason="needs Postgres: initdb is not on PATH"
)
OWNER = "postgres" if os.geteuid() == 0 else None  # Postgres refuses to run as root


def command(*words: str) -> None:
    subprocess.run(words, user=OWNER, check=True, stdout=subprocess.DEVNULL, cwd="/")


def query(port: int, database: str, sql: str) -> list[tuple[object, ...]]:
    address = f"postgresql://postgres@127.0.0.1:{port}/{database}"
    with closing(psycopg2.connect(address)) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute(sql)
            return cursor.fetchall() if cursor.description else []


@contextmanager
def postgres_server(*databases: str) -> Iterator[int]:
    """Yield the port of a new cluster, in a folder that its owner can reach."""
    folder = tempfile.mkdtemp()
    if OWNER:
        shutil.chown(folder, OWNER)
    port, data = free_port(), f"{folder}/data"
    settings = f"-p {port} -k {folder} -c listen_addresses=127.0.0.1 -c fsync=off"
    try:
        command("initdb", "-D", data, "-U", "postgres", "-A", "trust", "--no-sync")
        command("pg_ctl", "-D", data, "-l", f"{folder}/log", "-o", settings, "-w", "start")
        for name in databases:
            query(port, "postgres", f"create database {name}")
        yield port
    finally:
        if Path(data, "postmaster.pid").exists():
            command("pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
        shutil.rmtree(folder)
