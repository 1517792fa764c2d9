"""Commands of `citer` that run in a fork of their leash."""

import os
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import psutil
import pytest
import yaml

from flows.forkserver import ForkServer, starter
from flows.leash import ADOPTS, Leashed, Start, leashed
from tests.flows.project import ROOT
from tests.flows.servers import until

CITER = [sys.executable, "-c", "from citer.cli.door import main; main()"]
PREPARE = [*CITER, "prepare"]
PRELOADED = "flows.preloaded"

pytestmark = pytest.mark.skipif(not ADOPTS, reason="leashes are not forked elsewhere")


@pytest.fixture(scope="module")
def start() -> Iterator[Start]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "")  # where there is a GPU, nothing is forked
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
def running(start: Start, *command: str) -> Iterator[tuple[Leashed, list[psutil.Process]]]:
    """Run a command, by default `citer prepare`.

    Yields its leash, and the leash's children: the command, and the process that does its work.
    """
    with leashed(command or PREPARE, 60, os.environ, start) as leash:
        until(lambda: len(children(leash)) == 2, 20)
        yield leash, sorted(children(leash), key=lambda each: PRELOADED in each.cmdline())


def children(leash: Leashed) -> list[psutil.Process]:
    return psutil.Process(leash.pid).children()


def test_a_stage_runs_in_a_fork_of_its_leash(start: Start, params: Path) -> None:
    with running(start) as (leash, [command, stage]):
        assert command.cmdline() == PREPARE
        assert PRELOADED in stage.cmdline()
        assert PRELOADED in psutil.Process(leash.pid).cmdline()


def test_it_has_the_folder_and_the_environment_of_its_command(start: Start, params: Path) -> None:
    folder = params.parent / "elsewhere"
    folder.mkdir()
    (folder / "params.yaml").write_text("iterations: 7")
    line = f"cd elsewhere && FORCE_COLOR=1 {shlex.join(PREPARE)}"
    with leashed(["sh", "-c", line], 60, os.environ, start) as leash:
        shown = leash.stdout.read().decode()
        assert shown.startswith("\x1b[31mciter: params.yaml: iterations"), shown  # red
        assert leash.wait() == 2


def test_two_stages_run_at_the_same_time(start: Start, params: Path) -> None:
    with running(start) as (one, _), running(start) as (other, _):
        assert one.pid != other.pid
        assert len(children(one)) == 2


def test_output_to_a_full_disk_is_an_error(start: Start) -> None:
    line = f"{shlex.join([*CITER, '--help'])} > /dev/full"
    with leashed(["sh", "-c", line], 60, os.environ, start) as leash:
        assert "No space left on device" in leash.stdout.read().decode()
        assert leash.wait() == 1


def test_a_leash_says_why_it_cannot_start_its_command(start: Start) -> None:
    with leashed(["/no/such/command"], 60, os.environ, start) as leash:
        assert "No such file or directory: '/no/such/command'" in leash.stdout.read().decode()
        assert leash.wait() == 1


def test_the_command_has_the_status_of_a_killed_stage(start: Start, params: Path) -> None:
    with running(start) as (leash, [_, stage]):
        stage.kill()
        assert leash.wait() == 128 + signal.SIGKILL


def test_the_stage_ends_with_its_leash(start: Start, params: Path) -> None:
    with running(start) as (leash, [_, stage]):
        os.kill(leash.pid, signal.SIGKILL)
        assert stage.wait(20) is None
        assert leash.wait() == -signal.SIGKILL


def test_the_stage_ends_with_its_command(start: Start, params: Path) -> None:
    with running(start) as (leash, [command, stage]):
        command.kill()
        assert leash.wait() == 128 + signal.SIGKILL
        assert not stage.is_running()


def test_a_killed_command_takes_its_work_with_it_though_the_shell_goes_on(
    start: Start, params: Path
) -> None:
    with running(start, "sh", "-c", f"{shlex.join(PREPARE)}; sleep 60") as (leash, [shell, stage]):
        [command] = shell.children()
        command.kill()
        assert stage.wait(20) is None
        assert until(lambda: "sleep" in " ".join(shell.children()[0].cmdline()), 20)
        assert children(leash) == [shell]


def test_leaving_the_block_ends_the_stage(start: Start, params: Path) -> None:
    with running(start) as (_, [_, stage]):
        pass
    assert not stage.is_running()


def test_a_leash_starts_though_the_server_has_ended() -> None:
    server = ForkServer()
    Thread(target=server._process.kill).start()  # before or after the request arrives
    with leashed([sys.executable, "-c", "print(7)"], 60, os.environ, server.start) as leash:
        assert leash.stdout.read() == b"7\n"
        assert leash.wait() == 0
    server.close()


def test_a_stage_is_forked_though_the_path_of_temporary_files_is_long(
    params: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder := tmp_path / ("t" * 100)).mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.chdir(ROOT)
    with starter(needed=True) as start:
        monkeypatch.chdir(params.parent)
        with running(start) as (_, [_, stage]):
            assert PRELOADED in stage.cmdline()
