"""Commands of `citer` that run in a fork of their leash."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import yaml

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
