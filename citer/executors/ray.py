"""Join a Ray cluster.

All machines need the same environment, and the project and its models under the same paths. Ray is
imported late, because it takes seconds.
"""

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from citer.errors import InputError

if TYPE_CHECKING:
    import torch

    from citer.executors.actors import RayActors

CURRENT = Path("/tmp/ray/ray_current_cluster")  # `ray start` writes the cluster's address to it


def connect(device: "torch.device") -> "RayActors":
    """Connect this process to a Ray cluster.

    It is that of `$RAY_ADDRESS`, or of `ray start` on this machine. An actor gets a GPU if `device`
    is one, else a core. Raises InputError if no cluster answers.
    """
    named = os.environ.get("RAY_ADDRESS")
    address = named or (CURRENT.read_text() if CURRENT.exists() else "")
    if not _answers(address):
        lost = f"RAY_ADDRESS: {named!r}: does not answer" if named else "Ray: no cluster runs here"
        expected = "expected HOST:PORT of a Ray cluster, or `ray start --head` on this machine"
        raise InputError(f"{lost}, {expected}")
    _join(address)
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


def _answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=10):
            return True
    except (OSError, OverflowError, ValueError):
        return False
