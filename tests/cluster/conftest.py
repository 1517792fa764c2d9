"""A real Ray on this machine, to which others can be added."""

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from citer.executors import actors as joining
from citer.executors.base import Executor

ROOT = Path(__file__).parents[2]


class Cluster:
    """A Ray with one core, and the executor of this process on it."""

    def __init__(self) -> None:
        self.executor: Executor = joining.connect("CPU")

    def start_machine(self, cores: int) -> subprocess.Popen[bytes]:
        """Start a second node, as an operator does on another machine. Do not wait for it."""
        import ray

        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block"]
        command += [f"--address={ray.get_runtime_context().gcs_address}", f"--num-cpus={cores}"]
        command += ["--num-gpus=0", "--object-store-memory=100000000", "--disable-usage-stats"]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)

    @contextmanager
    def machine(self, cores: int) -> Iterator[None]:
        """Add a node with these cores, if any, and end it with the block."""
        if not cores:
            yield
            return
        process = self.start_machine(cores)
        try:
            self._wait(1 + cores)
            yield
        finally:
            end(process)
        self._wait(1)

    def _wait(self, cores: int) -> None:
        while self.executor.workers != cores:
            time.sleep(0.1)


def end(machine: subprocess.Popen[bytes]) -> None:
    """End a node at once, as if its machine were lost."""
    for process in [*psutil.Process(machine.pid).children(recursive=True), machine]:
        process.kill()
    machine.wait()


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    import ray

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT), prepend=":")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        head = ray.init(
            address="local",
            num_cpus=1,
            num_gpus=0,
            include_dashboard=False,
            object_store_memory=100_000_000,
            log_to_driver=False,
            logging_level="error",
        )
        patch.setenv("RAY_ADDRESS", head.address_info["address"])
        started = Cluster()
        yield started
        ray.shutdown()
