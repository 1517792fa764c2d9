"""Join a Ray cluster, or start Ray on this machine for one stage.

All machines need the same environment, and the project and its models under the same paths. Ray is
imported late, because it reads its token when it is imported. `python -m citer.executors.ray CORES`
is the Ray of one stage.
"""

import atexit
import os
import secrets
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import TYPE_CHECKING

from citer.errors import InputError

if TYPE_CHECKING:
    import torch

    from citer.executors.actors import RayActors

CURRENT = Path("/tmp/ray/ray_current_cluster")  # `ray start` writes the cluster's address to it
LONGEST = 44  # characters of a folder: Ray puts sockets there, whose paths may have 107
OBJECTS = 100 * 2**20  # bytes of shared memory: units and results are small


def connect(device: "torch.device") -> "RayActors":
    """Connect this process to a Ray cluster.

    It is that of `$RAY_ADDRESS`, or of `ray start` on this machine. If there is none, Ray is
    started with all visible GPUs and a core for each of torch's threads. That Ray ends with this
    process. An actor gets a GPU if `device` is one, else a core. Raises InputError if no cluster
    answers.
    """
    found = _running() or _started()
    if not _answers(found):
        expected = "expected HOST:PORT of a Ray cluster, or no such variable"
        raise InputError(f"RAY_ADDRESS: {found!r}: does not answer, {expected}")
    _join(found)
    from citer.executors.actors import RayActors

    return RayActors("GPU" if device.type == "cuda" else "CPU")


def _join(address: str) -> None:
    import ray

    if ray.is_initialized():
        return
    try:
        ray.init(address=address, logging_level="error", log_to_driver=False)
    except (ConnectionError, RuntimeError) as error:
        expected = "expected a cluster that this machine has joined"
        token = "RAY_AUTH_MODE=token if it has a token"
        reason = f"{error}, {expected}, and {token}"
        raise InputError(f"Ray at {address!r}: {reason}") from None


def _running() -> str | None:
    if named := os.environ.get("RAY_ADDRESS"):
        return named
    address = CURRENT.read_text() if CURRENT.exists() else ""
    return address if _answers(address) else None  # the cluster may have ended


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=10):
            return True
    except (OSError, OverflowError, ValueError):
        return False


@cache
def _started() -> str:
    """Start Ray and return its address. It ends with this process, however that ends."""
    import torch

    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    head = subprocess.Popen(
        [sys.executable, "-m", "citer.executors.ray", str(torch.get_num_threads())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # ^C is for this process
        text=True,
    )
    atexit.register(head.communicate)  # closes the pipe and waits
    assert head.stdout
    if address := head.stdout.readline().strip():
        return address
    raise RuntimeError(f"Ray ended with {head.wait()}: see its report above")


def main(cores: int) -> None:
    """Run Ray and print its address, until nobody holds the other end of standard input."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray

    usual = gettempdir()
    fits = len(str(Path(usual, "ray-12345678"))) <= LONGEST
    with TemporaryDirectory(prefix="ray-", dir=usual if fits else "/tmp") as folder:
        context = ray.init(
            address="local",
            num_cpus=cores,
            include_dashboard=False,
            object_store_memory=OBJECTS,
            log_to_driver=False,
            logging_level="error",
            _temp_dir=folder,
        )
        print(context.address_info["address"], flush=True)
        sys.stdin.read()
        ray.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]))
