"""Evidence in a real Postgres: servers on several machines share it."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise

import pytest

from citer.cli.main import call
from citer.errors import InputError
from citer.serving.evidence import PLACE, Evidence
from citer.serving.promise import Step
from tests.flows.postgres_server import NEEDED, postgres_server, query
from tests.promise.test_evidence import EXACT, WRITE, keeper, step_together

pytestmark = [pytest.mark.slow, NEEDED]
WRITERS = 4


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with postgres_server() as found:
        yield found


@pytest.fixture
def address(port: int, request: pytest.FixtureRequest) -> str:
    """An empty database."""
    name = re.sub(r"\W", "_", request.node.name)[:60].lower()
    query(port, "postgres", f"create database {name}")
    return f"postgresql://postgres@127.0.0.1:{port}/{name}"


def test_servers_step_together_and_one_of_them_tells(
    address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told: list[Step] = []
    step_together(address, told)
    third = keeper(address, told)
    assert (third.rule, len(told)) == (EXACT, 1)
    monkeypatch.setenv(PLACE, address)
    assert call(["status"]) == 0
    assert "revoked, step 1 of 1; to step forward: e-value" in capsys.readouterr().out


def test_nobody_sees_a_later_answer_first_and_killed_writers_leave_whole_rows(address: str) -> None:
    """Each writer prints the numbers of what it has stored."""
    command = [sys.executable, "-c", WRITE, address]
    writers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(WRITERS)]
    evidence, seen = Evidence(address), list[int]()
    while len(seen) < 400:
        seen += [entry.number for entry in evidence.after("v/1", seen[-1] if seen else 0)]
    for writer in writers:
        os.kill(writer.pid, signal.SIGKILL)
    said = [int(line) for each in writers for line in each.communicate()[0].split("\n")[:-1]]
    stored = [entry.number for entry in evidence.after("v/1")]
    assert seen == stored[: len(seen)]  # polling has missed none
    assert all(one < next_one for one, next_one in pairwise(stored))
    assert set(said) <= set(stored)
    assert len(stored) <= len(said) + WRITERS


def test_a_database_that_cannot_be_reached_is_one_line_without_its_password(
    port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    address = f"postgresql://postgres:secret@127.0.0.1:{port}/none"
    with pytest.raises(InputError, match="no evidence can be kept here: ") as refused:
        Evidence(address)
    assert "secret" not in str(refused.value)
    assert call(["status", "--evidence", address]) == 1  # it may be there later
    assert "secret" not in capsys.readouterr().err
