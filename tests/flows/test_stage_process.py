"""The processes of a stage, and what kills and DVC make of them."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import psutil
import pytest

from citer.errors import InputError, TemporaryError
from flows.dvc_commands import LOCK, dvc
from flows.repro import reproduce
from tests.flows.conftest import Pipeline
from tests.flows.project import TOY, change_params
from tests.flows.servers import until

pytestmark = pytest.mark.slow
HOUR = timedelta(hours=1)
PREPARE = {"cmd": "citer prepare", "params": ["prepare"], "outs": ["data/problems"]}
# Imports what the fork server imports, in a process that may not ask for GPUs.
PRELOAD = """
import torch
def asked(): raise SystemExit("CUDA was touched")
torch.cuda.is_available = torch.cuda.device_count = torch.cuda.init = asked
import flows.preload
"""
# Kills the keeper of the stage, the parent of its worker, as Linux may do if memory runs out.
KILLS_KEEPER = "kill -9 $(cut -d ' ' -f 4 /proc/$PPID/stat); touch written; sleep 600"
# Then the process of the stage writes no file that is larger, as on a disk that is nearly full.
FILLS = "mkdir d; head -c 9000000 /dev/zero > d/a; prlimit --pid $PPID --fsize=5000000"

REPRODUCE = """
from datetime import timedelta
from flows.repro import reproduce
try:
    reproduce("prepare", timedelta(hours=1), print)
except Exception as error:
    print(type(error).__name__)
"""


class Running:
    """A flow's process that runs a stage: its `server` forked a `keeper`, and this a `worker`."""

    def __init__(self) -> None:
        self.flow = psutil.Popen([sys.executable, "-c", REPRODUCE], stdout=subprocess.PIPE)
        self.server, self.keeper, self.worker = until(self._processes, 300)

    def _processes(self) -> list[psutil.Process]:
        for server in self.flow.children():
            for keeper in server.children():
                return [server, keeper, *keeper.children()][: 3 * len(keeper.children())]
        return []


@pytest.fixture
def running(pipeline: Pipeline) -> Iterator[Running]:
    """`citer prepare` with so many rows that it takes minutes. At the end, no process is left."""
    pipeline({"prepare": PREPARE})
    change_params("prepare", toy={"tasks": ["math"], **TOY, "sft": 10**6})
    running = Running()
    yield running
    with suppress(psutil.NoSuchProcess):
        running.flow.kill()
    _, left = psutil.wait_procs([running.keeper, running.worker], 60)
    assert not left


def test_a_stage_ends_with_its_flow(running: Running) -> None:
    running.flow.kill()
    _, left = psutil.wait_procs([running.worker], 60)
    assert not left


def test_a_stage_ends_with_its_keeper(running: Running) -> None:
    running.keeper.kill()
    said, _ = running.flow.communicate(timeout=300)
    assert said.decode().split()[-1] == TemporaryError.__name__


def test_a_command_whose_keeper_was_killed_has_failed(pipeline: Pipeline) -> None:
    pipeline({"kills": {"cmd": KILLS_KEEPER, "outs": ["written"]}})
    with pytest.raises(TemporaryError, match="kills: its keeper was killed"):
        reproduce("kills", HOUR, print)
    assert not LOCK.exists()


def test_a_stage_goes_on_without_the_fork_server_but_not_without_its_flow(running: Running) -> None:
    running.server.kill()
    until(lambda: running.keeper.ppid() != running.server.pid, 20)
    assert running.worker.is_running()


def test_dvc_finds_the_same_records_as_its_own(pipeline: Pipeline) -> None:
    pipeline({"prepare": PREPARE})
    assert reproduce("prepare", HOUR, print)
    assert "up to date" in dvc("repro")
    ours = LOCK.read_bytes()
    LOCK.unlink()
    assert "is cached - skipping run" in dvc("repro")  # found in the run cache
    assert LOCK.read_bytes() == ours
    dvc("repro", "--force")
    assert LOCK.read_bytes() == ours
    LOCK.unlink()
    assert not reproduce("prepare", HOUR, print)
    assert LOCK.read_bytes() == ours


def test_a_folder_that_dvc_could_not_copy_whole_ends_the_run(pipeline: Pipeline) -> None:
    """DVC logs this, and goes on."""
    pipeline({"fills": {"cmd": FILLS, "outs": ["d"]}})
    with pytest.raises(InputError, match=r"^d: not whole .* run `dvc commit --force fills`, then"):
        reproduce("fills", HOUR, print)
    dvc("commit", "--force", "fills")
    assert not reproduce("fills", HOUR, print)


def test_a_link_to_a_persistent_output_stays(pipeline: Pipeline, tmp_path: Path) -> None:
    pipeline({"prepare": PREPARE | {"outs": [{"data/problems": {"persist": True}}]}})
    (disk := tmp_path / "disk").mkdir()
    Path("data/problems").symlink_to(disk)
    dvc("repro")
    by_hand = state(disk)
    LOCK.unlink()
    subprocess.run(["rm", "-r", ".dvc/cache"], check=True)
    assert reproduce("prepare", HOUR, print)
    assert state(disk) == by_hand


def state(disk: Path) -> tuple[bytes, bool, int]:
    return LOCK.read_bytes(), Path("data/problems").is_symlink(), len([*disk.iterdir()])


def test_the_fork_server_does_not_touch_cuda() -> None:
    """It would not survive the fork."""
    subprocess.run([sys.executable, "-c", PRELOAD], check=True)


def test_the_path_of_temporary_files_may_be_long(tmp_path: Path) -> None:
    """A socket's path has at most 107 characters, and the fork server has a socket."""
    (folder := tmp_path / ("t" * 100)).mkdir()
    script = "import flows.repro, os; flows.repro._shorten_paths_of_sockets()\n"
    script += "from flows.process_tree import *\n"
    script += "with tree('forkserver', os.getcwd) as line: print(*received(line))"
    environment = os.environ | {"TMPDIR": str(folder)}
    said = subprocess.check_output([sys.executable, "-c", script], env=environment, text=True)
    assert said == f"{os.getcwd()} 0\n"
    assert [*folder.iterdir()] == []
