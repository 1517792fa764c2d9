"""The console script, whose command may run in another process."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from citer.cli.door import DOOR, LOST

COMMAND = [sys.executable, "-c", "from citer.cli.door import main; main()", "--help"]


def run(door: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {DOOR: door}
    return subprocess.run(COMMAND, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def door(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(tmp_path / "door"))
        door.listen()
        yield door


@pytest.mark.parametrize(("answer", "status"), [("7\n", 7), ("0\n", 0), ("", LOST)])
def test_the_process_behind_the_door_gets_the_command_and_decides_its_status(
    door: socket.socket, answer: str, status: int
) -> None:
    requests = []

    def behind() -> None:
        caller, _ = door.accept()
        with caller, caller.makefile() as lines:
            _, streams, *_ = socket.recv_fds(caller, 1, 3)
            requests.append(json.loads(lines.readline()))
            os.write(streams[1], b"to stdout")
            os.write(streams[2], b"to stderr")
            for each in streams:
                os.close(each)
            caller.sendall(answer.encode())

    thread = Thread(target=behind)
    thread.start()
    done = run(door.getsockname())
    thread.join()
    assert (done.returncode, done.stdout, done.stderr) == (status, "to stdout", "to stderr")
    [request] = requests
    assert request["argv"][1:] == ["--help"]
    assert request["folder"] == os.getcwd()
    assert DOOR not in request["environment"]


def test_a_command_runs_itself_if_nobody_is_behind_the_door(tmp_path: Path) -> None:
    done = run(str(tmp_path / "door"))
    assert done.returncode == 0
    assert "Token-level routing" in done.stdout
