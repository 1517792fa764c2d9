"""Commands of `citer` that run in a fork of their leash."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import psutil
import pytest
import yaml

from citer.door import DOOR, LOST
from flows.forkserver import ForkServer, starter
from flows.leash import Leashed, Start, leashed
from tests.flows.project import ROOT
from tests.flows.servers import until

COMMAND = [sys.executable, "-c", "from citer.door import main; main()"]


@pytest.fixture(scope="module")
def start() -> Iterator[Start]:
    with starter(needed=True) as start:
        yield start


@pytest.fixture
def params(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The settings of a stage `prepare` that takes minutes."""
    monkeypatch.chdir(tmp_path)
    settings = yaml.safe_load((ROOT / "params.yaml").read_text())
    settings["prepare"]["toy"]["sft"] = 10**6
    params = tmp_path / "params.yaml"
    params.write_text(yaml.safe_dump(settings))
    return params


@contextmanager
def running(start: Start) -> Iterator[tuple[Leashed, psutil.Process, psutil.Process]]:
    """Run `citer prepare`; yield its leash, its process, and the process that does the work."""
    with leashed([*COMMAND, "prepare"], 60, os.environ, start) as leash:
        forks = until(lambda: found if len(found := children(leash)) == 2 else None, 20)
        command, stage = sorted(forks, key=lambda each: "flows.preloaded" in each.cmdline())
        assert command.cmdline() == [*COMMAND, "prepare"]
        yield leash, command, stage


def children(leash: Leashed) -> list[psutil.Process]:
    return psutil.Process(leash.pid).children()


def test_a_stage_runs_in_a_fork_of_its_leash(start: Start, params: Path) -> None:
    with running(start) as (_, _, stage):
        assert "flows.preloaded" in stage.cmdline()
        assert until(lambda: stage.cwd() == str(params.parent), 20)


def test_it_has_the_environment_and_the_status_of_the_command(
    start: Start, params: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    params.write_text("iterations: 7")
    monkeypatch.setenv("FORCE_COLOR", "1")
    with leashed([*COMMAND, "prepare"], 60, os.environ, start) as leash:
        line = leash.stdout.read().decode()
        assert line.startswith("\x1b[31mciter: params.yaml: iterations"), line  # red
        assert leash.wait() == 2


def test_the_command_has_the_status_of_a_killed_stage(start: Start, params: Path) -> None:
    with running(start) as (leash, _, stage):
        stage.kill()
        assert leash.wait() == 128 + signal.SIGKILL


def test_the_stage_ends_with_its_leash(start: Start, params: Path) -> None:
    with running(start) as (leash, _, stage):
        os.kill(leash.pid, signal.SIGKILL)
        assert stage.wait(20) is None
        assert leash.wait() == -signal.SIGKILL


def test_the_stage_ends_with_its_command(start: Start, params: Path) -> None:
    with running(start) as (leash, command, stage):
        command.kill()
        assert leash.wait() == 128 + signal.SIGKILL
        assert not stage.is_running()


def test_leaving_the_block_ends_the_stage(start: Start, params: Path) -> None:
    with running(start) as (_, _, stage):
        pass
    assert not stage.is_running()


def test_a_leash_starts_though_the_server_has_ended() -> None:
    server = ForkServer()
    server._process.kill()
    with leashed([sys.executable, "-c", "print(7)"], 60, os.environ, server.start) as leash:
        assert leash.stdout.read() == b"7\n"
        assert leash.wait() == 0
    server.close()


def run(door: str, environment: Mapping[str, str] = os.environ) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, "--help"], env={**environment, DOOR: door}, capture_output=True, text=True
    )


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
