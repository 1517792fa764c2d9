"""Real servers on free ports, for the tests that need one."""

import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import httpx


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def until(found: Callable[[], Any], seconds: float) -> Any:
    """The first true answer."""
    deadline = time.monotonic() + seconds
    while not (answer := found()):
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.5)
    return answer


@contextmanager
def serving(command: Sequence[str], env: Mapping[str, str], url: str) -> Iterator[None]:
    """Run a server until its page `/health` has answered, and end it afterwards."""

    def healthy() -> bool:
        try:
            return httpx.get(f"{url}/health").is_success
        except httpx.TransportError:
            return False

    process = subprocess.Popen(command, env=env)
    try:
        until(healthy, 180)
        yield
    finally:
        process.terminate()
        process.wait(30)
