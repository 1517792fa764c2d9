"""MLflow's tables as another version of MLflow wrote them."""

import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory

from citer.errors import InputError
from flows.tracking.store import MIGRATIONS, make_store, open_store

DATABASE = Path("mlruns/mlflow.db")
REVISIONS = [script.revision for script in ScriptDirectory(MIGRATIONS).walk_revisions()]
NEWEST, OLDER = REVISIONS[0], REVISIONS[4]


def downgrade(database: Path) -> None:
    """Bring the tables to those of an older MLflow, with what is in them."""
    settings = Config()
    settings.set_main_option("script_location", str(MIGRATIONS))
    settings.set_main_option("sqlalchemy.url", f"sqlite:///{database.absolute()}")
    command.downgrade(settings, OLDER)


@pytest.mark.parametrize("shared", [False, True])
def test_the_tables_of_an_older_mlflow_are_refused_until_mlflow_has_upgraded_them(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    file = tmp_path / "shared.db" if shared else project / DATABASE
    downgrade(DATABASE)
    if shared:
        DATABASE.rename(file)
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{file}")
    before = file.read_bytes()
    said = f"schema {OLDER}, expected {NEWEST} of .* back it up, then"
    with pytest.raises(InputError, match=said):
        make_store("citer")
    assert file.read_bytes() == before
    with pytest.raises(InputError) as refused:
        open_store("citer")
    command = re.search("`mlflow (db upgrade .*?)`", str(refused.value))
    assert command
    subprocess.run([sys.executable, "-m", "mlflow", *command[1].split()], check=True)
    assert make_store("citer").experiment_id == open_store("citer").experiment_id


def test_the_tables_of_a_newer_mlflow_are_refused(project: Path) -> None:
    with sqlite3.connect(DATABASE) as tables:
        tables.execute("update alembic_version set version_num = '0123456789ab'")
    before = DATABASE.read_bytes()
    said = "schema 0123456789ab, expected .* newer one did, install"
    with pytest.raises(InputError, match=said):
        open_store("citer")
    assert DATABASE.read_bytes() == before
