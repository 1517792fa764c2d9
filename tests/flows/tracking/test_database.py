"""MLflow's tables as another version of MLflow wrote them."""

import shutil
import sqlite3
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from mlflow import MlflowClient

from citer.errors import InputError
from flows.tracking.compare import compare
from flows.tracking.database import MIGRATIONS
from flows.tracking.registry import promote
from flows.tracking.restore import restore
from flows.tracking.store import open_store
from tests.flows.project import register, retrain
from tests.flows.tracking.registered import CHAMPION, NAME, age, fetch, holder, version

DATABASE = Path("mlruns/mlflow.db")
REVISIONS = [script.revision for script in ScriptDirectory(MIGRATIONS).walk_revisions()]
NEWEST, OLDER = REVISIONS[0], REVISIONS[4]
# What the first citer that had a gate wrote on a version.
FIRST_TAGS = {"accuracy", "cost_b1", "decision", "digest", "history", "iteration", "rule"}


def downgrade(database: Path) -> None:
    """Bring the tables to those of an older MLflow, with what is in them."""
    settings = Config()
    settings.set_main_option("script_location", str(MIGRATIONS))
    settings.set_main_option("sqlalchemy.url", f"sqlite:///{database.absolute()}")
    command.downgrade(settings, OLDER)


def revision(database: Path) -> str:
    with sqlite3.connect(database) as tables:
        return tables.execute("select version_num from alembic_version").fetchone()[0]


def set_revision(name: str) -> None:
    with sqlite3.connect(DATABASE) as tables:
        tables.execute("update alembic_version set version_num = ?", (name,))


def test_the_store_of_an_earlier_citer_and_an_older_mlflow_opens(
    project: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    retrain(1)
    register()
    for number in (1, 2):
        age(number)
        for tag in {*version(number).tags} - FIRST_TAGS:
            MlflowClient().delete_model_version_tag(NAME, str(number), tag)
    downgrade(DATABASE)
    shutil.copytree(project, tmp_path / "upgraded")  # this process has the old one open
    monkeypatch.chdir(tmp_path / "upgraded")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")  # MLflow has set it to the old one
    retrain(2, cost=0.4)
    assert "version 4 promoted: " in register()
    printed = " ".join(capsys.readouterr().out.split())
    assert printed.count(f"mlruns/mlflow-{OLDER}.db is the old") == 1
    assert (revision(DATABASE), revision(Path(f"mlruns/mlflow-{OLDER}.db"))) == (NEWEST, OLDER)
    promote(2)
    compare()
    assert holder("champion") == 2
    fetch(CHAMPION)
    Path("dvc.lock").unlink()
    with pytest.raises(InputError, match=r"version 4, made by git commit .* is not restored"):
        restore(4)  # `retrain` gives DVC no data


def test_a_migration_that_fails_leaves_the_old_tables(project: Path) -> None:
    set_revision(OLDER)  # but the tables are new, so that what it adds is there
    before = DATABASE.read_bytes()
    with pytest.raises(InputError, match=f"^{DATABASE}: cannot be migrated and is unchanged: "):
        open_store("citer")
    assert DATABASE.read_bytes() == before
    assert not list(Path("mlruns").glob(".*aside*"))


def test_the_tables_of_a_newer_mlflow_are_refused(project: Path) -> None:
    set_revision("0123456789ab")
    before = DATABASE.read_bytes()
    with pytest.raises(InputError, match=r"schema 0123456789ab is unknown to MLflow .* install"):
        open_store("citer")
    assert DATABASE.read_bytes() == before


def test_tables_that_others_use_are_never_migrated_unasked(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_revision(OLDER)
    shared = DATABASE.rename(tmp_path / "shared.db")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{shared}")
    with pytest.raises(InputError, match=f"schema {OLDER} of an older MLflow; .* back it up, then"):
        open_store("citer")
    assert revision(shared) == OLDER
