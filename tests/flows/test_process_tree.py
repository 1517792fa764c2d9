import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import psutil
import pytest

from flows.process_tree import PLACE, received, tempdir, tree
from tests.flows.servers import until

# A launcher that starts a rank in a session of its own, as torchrun does, and prints its pid.
LAUNCHER = """
import subprocess, sys, time
rank = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"],
                        start_new_session=True)
print(rank.pid, flush=True)
time.sleep(float(sys.argv[1]))
"""
# The same, but the rank ignores SIGTERM.
STUBBORN = LAUNCHER.replace(
    "import time;", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
)
# At SIGTERM, prints whether its child still runs.
NEEDY = """
import signal, subprocess, sys, time
needed = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
def end(*_):
    time.sleep(1)
    print(needed.poll() is None, flush=True)
    sys.exit()
signal.signal(signal.SIGTERM, end)
print("started", flush=True)
time.sleep(600)
"""
CALLER = """
import subprocess, sys
from flows.process_tree import received, tree
with tree("forkserver", subprocess.call, [sys.executable, "-c", sys.argv[1], "600"]) as line:
    print(*received(line))
"""
HOLDER = """
import sys
from flows.process_tree import run_command
run_command(sys.executable, "-c", sys.argv[1], "600")
"""
# A launcher that ends itself when its keeper is killed.
HELD = """
import os, sys, threading, time
from flows.process_tree import end_all
def watch():
    while os.getppid() == int(sys.argv[2]):
        time.sleep(0.1)
    end_all()
threading.Thread(target=watch, daemon=True).start()
"""

# Ends its child, though psutil finds none at first: that can be so while another process ends.
MISSED = """
import psutil, subprocess
from flows.process_tree import end_all
print(subprocess.Popen(["sleep", "600"]).pid, flush=True)
children, found = psutil.Process.children, [[]]
psutil.Process.children = lambda *args, **named: (
    found.pop() if found else children(*args, **named))
end_all()
"""


def dead(pid: int, seconds: float = 20) -> bool:
    """Return whether the process ends within `seconds`."""
    deadline = time.monotonic() + seconds
    while psutil.pid_exists(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not psutil.pid_exists(pid)


@contextmanager
def launched(script: str, output: Path, seconds: int = 600) -> Iterator[tuple[Connection, str]]:
    """Run a script in a tree. Yield the connection, and the first line that the script prints."""
    command = f"exec {shlex.join([sys.executable, '-c', script, str(seconds)])} > {output}"
    with tree("forkserver", os.system, command) as line:
        yield line, until(lambda: output.exists() and output.read_text(), 20).split("\n")[0]


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_folders_of_ended_runs_are_removed_and_folders_of_living_runs_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pid of another host or container says nothing here."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    unknown = 2**22 + 1
    killed, same_pid, living = (
        tmp_path / f"citer-run-{PLACE}-{pid}-x" for pid in (unknown, os.getpid(), os.getppid())
    )
    elsewhere, other = tmp_path / f"citer-run-01234567-{unknown}-x", tmp_path / "citer-run-other"
    for folder in (killed / "left", same_pid, living, elsewhere, other):
        folder.mkdir(parents=True)
    with tempdir() as ours:
        assert {*tmp_path.iterdir()} == {living, elsewhere, other, ours}
        assert [*ours.iterdir()] == []
        (ours / "left").mkdir()
    assert {*tmp_path.iterdir()} == {living, elsewhere, other}


@pytest.mark.parametrize(
    ("work", "answers"), [(os.getcwd, [os.getcwd(), 0]), (killed, [137]), (os.abort, [134])]
)
def test_the_result_and_the_status_of_the_worker_are_passed_on(
    work: object, answers: list[object]
) -> None:
    with tree("forkserver", work) as line:  # type: ignore[arg-type]
        assert [*received(line)] == answers


def test_processes_that_the_command_leaves_running_are_ended(tmp_path: Path) -> None:
    with launched(LAUNCHER, tmp_path / "pid", seconds=0) as (line, rank):
        assert [*received(line)] == [0, 0]
    assert dead(int(rank))


def test_leaving_the_block_ends_the_grandchild(tmp_path: Path) -> None:
    with launched(LAUNCHER, tmp_path / "pid") as (_, rank):
        assert psutil.pid_exists(int(rank))
    assert dead(int(rank), seconds=0)


def test_a_child_that_psutil_misses_once_is_ended() -> None:
    said = subprocess.run([sys.executable, "-c", MISSED], stdout=subprocess.PIPE, text=True)
    assert dead(int(said.stdout), seconds=0)


def test_a_command_ends_before_its_children(tmp_path: Path) -> None:
    with launched(NEEDY, tmp_path / "said"):
        pass
    assert (tmp_path / "said").read_text() == "started\nTrue\n"


@pytest.mark.slow
def test_a_process_that_ignores_sigterm_is_killed_after_the_grace_period(tmp_path: Path) -> None:
    with launched(STUBBORN, tmp_path / "pid") as (_, rank):
        pass
    assert dead(int(rank), seconds=0)


@pytest.mark.parametrize("script", [CALLER, HOLDER])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_when_the_caller_is_killed_nothing_survives(script: str, number: signal.Signals) -> None:
    caller = subprocess.Popen([sys.executable, "-c", script, LAUNCHER], stdout=subprocess.PIPE)
    assert caller.stdout
    rank = int(caller.stdout.readline())
    caller.send_signal(number)
    caller.wait()
    assert dead(rank)
    caller.stdout.close()


def test_a_killed_keeper_ends_its_tree(tmp_path: Path) -> None:
    with launched(LAUNCHER, tmp_path / "pid") as (line, rank):
        psutil.Process(int(rank)).parents()[2].kill()
        assert 0 not in received(line)
        assert dead(int(rank))


def test_a_killed_keeper_of_a_run_leaves_no_process() -> None:
    command = [sys.executable, "-c", HOLDER, HELD + LAUNCHER]
    caller = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert caller.stdout
    rank = psutil.Process(int(caller.stdout.readline()))
    [keeper] = psutil.Process(caller.pid).children()
    held = rank.parent()
    assert held
    assert held.ppid() == keeper.pid
    keeper.kill()
    assert caller.wait() == 0  # HOLDER drops what `run_command` returns
    assert dead(held.pid)
    assert dead(rank.pid)
    caller.stdout.close()
