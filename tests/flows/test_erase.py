"""The recipe that erases a person's rows: in a log, in DVC's cache, and what is left."""

import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from citer.storage.schema import AUDITED
from citer.storage.tables import read_table, table_metadata
from flows.dvc_commands import dvc
from tests.served import served, write_served

SCRIPT = Path(__file__).parents[2] / "docs/examples/erase.py"
LOG, NAME = Path("data/own/log"), " ".join(("Zoë", "Quux"))  # this file is searched, too


def erase(*arguments: str) -> list[str]:
    command = [sys.executable, str(SCRIPT), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.usefixtures("checkout")
def test_rows_leave_the_log_and_dvcs_cache_and_the_rest_stays() -> None:
    LOG.mkdir()
    said = {"messages": [{"role": "user", "content": f"I am {NAME}."}]}
    mine = served("Who am I?", **said), served("And I?", completion=f"You are {NAME}")
    for name, others in (("a", 3), ("b", 0)):
        rows = [*mine, *(served(f"{name} {n}?") for n in range(others))]
        write_served(f"{LOG}/{name}.parquet", rows)
    stamp = table_metadata(LOG / "a.parquet")
    dvc("add", str(LOG))
    Path("answers.json").write_text(json.dumps([NAME]))
    assert len(erase("find", NAME)) == 5  # and two in DVC's cache

    ids = erase("remove", str(LOG), NAME)
    assert ids == [row["problem_id"] for row in mine] * 2
    left = read_table(LOG / "a.parquet", AUDITED)
    assert left["question"].to_pylist() == ["a 0?", "a 1?", "a 2?"]
    assert len(read_table(LOG / "b.parquet", AUDITED)) == 0
    assert table_metadata(LOG / "a.parquet") == stamp
    assert stat.S_IMODE((LOG / "a.parquet").stat().st_mode) == 0o600

    dvc("add", str(LOG))
    assert len(erase("find", NAME, *ids)) == 3
    dvc("gc", "--workspace", "--force")
    assert erase("find", NAME, *ids) == ["answers.json"]
    assert erase("find", served("a 0?")["problem_id"]) != []
