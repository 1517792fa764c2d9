"""Erase logged rows: from the log, and what DVC's cache and remotes have of them."""

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dvc.repo import Repo

from citer.errors import TemporaryError, one_line
from citer.progress import say
from citer.serving.erase import Texts, closed, remove_rows
from flows.dvc_commands import locked
from flows.repro import LOCK

ROOTS = ("data", "mlruns", ".retrain")
LEFT = """\
Not erased: what the SLM and the heads of earlier versions learned from these rows, MLflow's \
artifacts, and the files named above. If others asked the same, their copies count, too. \
`citer run` makes the outputs in data again; docs/operations.md has the rest."""


def erase(column: str, key: str, folders: Sequence[Path]) -> None:
    """Erase the rows that have `key` in `column` from folders of a log.

    Objects of DVC that tell of these rows go before the rows, so that a killed call can be
    repeated. Prints each of them, and the files of the checkout that do. Raises InputError, and
    TemporaryError if a remote does not answer.
    """
    with ExitStack() as stack:
        project = Path(".dvc").is_dir()  # a machine that only serves has none
        if project:
            stack.enter_context(locked(LOCK, "another run in this folder", say))
        logs = {folder: stack.enter_context(closed(folder)) for folder in folders}
        tables = (table for log in logs.values() for table in log.values())
        texts = Texts(column, key, (row for table in tables for row in table.to_pylist()))
        if project:
            _clear(texts)
        for folder, log in logs.items():
            erased = sum(remove_rows(file, table, column, key) for file, table in log.items())
            say(f"{folder}: {erased:,} rows erased")
            if (pointer := Path(f"{folder}.dvc")).exists():
                say(f"{pointer}: names the earlier rows: `citer data add {folder}`, and commit")
        for file in (file for root in ROOTS for file in sorted(Path(root).rglob("*"))):
            if file.is_file() and not file.is_symlink() and texts.held_by(file):
                say(f"{file}: has a text of them")
    say(LEFT)


def _clear(texts: Texts) -> None:
    known: dict[str, bool] = {}  # whether an object has a text; equal ones are read once
    with Repo() as repo:
        _clear_store("DVC's cache", repo.cache.local, texts, known)
        for name in repo.config["remote"]:
            try:
                store = repo.cloud.get_remote_odb(name, "erase")
                _clear_store(f"DVC's remote {name}", store, texts, known)
            except Exception as error:  # each kind of remote has its own
                reason = one_line(str(error))
                raise TemporaryError(f"DVC's remote {name}: {reason}; repeat it") from None


def _clear_store(name: str, store: Any, texts: Texts, known: dict[str, bool]) -> None:
    """Remove the objects with a text, and first the lists of folders that have one of these."""
    oids = sorted(store.all())
    lists = [oid for oid in oids if oid.endswith(".dir")]
    for oid in {*oids} - {*lists} - known.keys():
        known[oid] = _holds(store, oid, texts)
    gone = [oid for oid in oids if known.get(oid)]
    for oid in lists:
        listed = store.fs.cat_file(store.oid_to_path(oid)).decode()
        if any(f'"{each}"' in listed for each, holds in known.items() if holds):
            gone.insert(0, oid)
    for oid in gone:
        store.delete(oid)
        say(f"{name}: {oid} erased")
    say(f"{name}: {len(gone)} of {len(oids)} objects erased")


def _holds(store: Any, oid: str, texts: Texts) -> bool:
    path = store.oid_to_path(oid)
    if store.fs.protocol == "local":
        return texts.held_by(Path(path))
    with TemporaryDirectory() as folder:
        store.fs.get_file(path, f"{folder}/{oid}")
        return texts.held_by(Path(folder, oid))
