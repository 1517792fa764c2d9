import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import psutil
import pytest

from flows.forkserver import starter
from flows.leash import ADOPTS, TIMED_OUT, Start, execed, leashed

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
time.sleep(600)
"""
CALLER = """
import sys
from flows.forkserver import starter
from flows.leash import leashed
with starter(FORKED) as start:
    with leashed([sys.executable, "-c", sys.argv[1], "600"], 600, {}, start) as process:
        print(process.stdout.readline().decode(), flush=True)
        process.wait()
"""
CALLERS = [CALLER.replace("FORKED", "False"), CALLER.replace("FORKED", "True")]
HOLDER = """
import sys
from flows.leash import held
held([sys.executable, "-c", sys.argv[1], "600"])
"""
# A launcher that ends itself when its leash is killed.
HELD = "from flows.leash import end_with_the_leash; end_with_the_leash()" + LAUNCHER


@pytest.fixture(scope="module", params=["execed", "forked"])
def start(request: pytest.FixtureRequest) -> Iterator[Start]:
    forked = request.param == "forked"
    with starter(forked) as start:
        with leashed(["true"], 60, os.environ, start) as first:
            assert forked == (type(first).__name__ == "_Forked")
        yield start


def dead(pid: int, seconds: float = 20) -> bool:
    """Return whether the process ends within `seconds`."""
    deadline = time.monotonic() + seconds
    while psutil.pid_exists(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not psutil.pid_exists(pid)


def launch(
    script: str, launcher_seconds: float, seconds: float, start: Start = execed
) -> tuple[int, int]:
    """Run a launcher on a leash; return its exit status and its rank's pid."""
    command = [sys.executable, "-c", script, str(launcher_seconds)]
    with leashed(command, seconds, os.environ, start) as process:
        rank = int(process.stdout.readline())
        return process.wait(), rank


@pytest.mark.parametrize("status", [0, 2, 255])
def test_the_commands_status_is_passed_on(status: int, start: Start) -> None:
    command = [sys.executable, "-c", f"raise SystemExit({status})"]
    with leashed(command, 60, os.environ, start) as process:
        assert process.wait() == status


def test_a_command_killed_by_a_signal_has_another_status_than_one_that_exits(start: Start) -> None:
    command = [sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"]
    with leashed(command, 60, os.environ, start) as process:
        assert process.wait() == 128 + signal.SIGKILL


def test_processes_that_the_command_leaves_running_are_ended(start: Start) -> None:
    status, rank = launch(LAUNCHER, launcher_seconds=0, seconds=60, start=start)
    assert status == 0
    assert dead(rank)


def test_a_timeout_ends_the_grandchild_too(start: Start) -> None:
    status, rank = launch(LAUNCHER, launcher_seconds=600, seconds=2, start=start)
    assert status == TIMED_OUT
    assert dead(rank)


@pytest.mark.skipif(not ADOPTS, reason="all at once, elsewhere")
def test_a_command_ends_before_its_children(start: Start) -> None:
    with leashed([sys.executable, "-c", NEEDY], 2, os.environ, start) as process:
        assert process.stdout.readline() == b"True\n"


@pytest.mark.slow
def test_a_process_that_ignores_sigterm_is_killed_after_the_grace_period(start: Start) -> None:
    status, rank = launch(STUBBORN, launcher_seconds=600, seconds=2, start=start)
    assert status == TIMED_OUT
    assert dead(rank)


def test_leaving_the_block_ends_the_grandchild(start: Start) -> None:
    command = [sys.executable, "-c", LAUNCHER, "600"]
    with leashed(command, 600, os.environ, start) as process:
        rank = int(process.stdout.readline())
        assert psutil.pid_exists(rank)
    assert dead(rank, seconds=0)


@pytest.mark.parametrize("script", [*CALLERS, HOLDER])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_when_the_caller_is_killed_nothing_survives(script: str, number: signal.Signals) -> None:
    caller = subprocess.Popen([sys.executable, "-c", script, LAUNCHER], stdout=subprocess.PIPE)
    assert caller.stdout
    rank = int(caller.stdout.readline())
    caller.send_signal(number)
    caller.wait()
    assert dead(rank)
    caller.stdout.close()


def test_a_killed_leash_ends_its_command_and_the_caller_gets_its_status(start: Start) -> None:
    command = [sys.executable, "-c", LAUNCHER.replace("start_new_session=True", ""), "600"]
    with leashed(command, 600, os.environ, start) as process:
        child = psutil.Process(int(process.stdout.readline()))
        os.kill(process.pid, signal.SIGKILL)
        assert dead(child.pid)
        assert process.stdout.read() == b""
        assert process.wait() == -signal.SIGKILL


def test_a_killed_leash_of_a_run_leaves_no_process() -> None:
    caller = subprocess.Popen([sys.executable, "-c", HOLDER, HELD], stdout=subprocess.PIPE)
    assert caller.stdout
    rank = psutil.Process(int(caller.stdout.readline()))
    [leash] = psutil.Process(caller.pid).children()
    held = rank.parent()
    assert held
    assert held.ppid() == leash.pid
    leash.kill()
    assert caller.wait() == 0  # HOLDER drops what `held` returns
    assert dead(held.pid)
    assert dead(rank.pid)
    caller.stdout.close()
