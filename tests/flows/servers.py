"""Real servers on free ports, for the tests that need one."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx

# MLflow's jobs are processes of their own, which write into the server's SQLite beside it.
NO_JOBS = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


def until(condition: Callable[[], Any], seconds: float) -> Any:
    """Call `condition` until it returns a true value; return that value."""
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.5)
    return answer


def answers(url: str) -> bool:
    """Return whether a server's `/health` says that it is well."""
    try:
        return httpx.get(f"{url}/health").is_success
    except httpx.TransportError:
        return False


@contextmanager
def refusing(status: int) -> Iterator[str]:
    """Run a server that answers every request with an error. Yields where it is, HOST:PORT."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(status)

        do_POST = do_PUT = do_GET

        def log_message(self, format: str, *args: object) -> None:
            """Keep stderr for what is tested."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


@contextmanager
def mlflow_server(folder: Path) -> Iterator[str]:
    """Serve the database `mlflow.db` of a folder, with artifacts beside it. Yields the address."""
    url = f"http://127.0.0.1:{(port := free_port())}"
    options = [f"--backend-store-uri=sqlite:///{folder / 'mlflow.db'}", f"--port={port}"]
    options += [f"--artifacts-destination={folder / 'artifacts'}"]
    with serving(["mlflow", "server", *options], NO_JOBS, url):
        yield url


@contextmanager
def serving(
    command: Sequence[str], env: Mapping[str, str], url: str, seconds: float = 300
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server inside the block, which starts when `/health` answers, or until it ends."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path} | env
    process = subprocess.Popen(command, env=environment, start_new_session=True)

    def healthy() -> bool:
        assert process.poll() is None, f"ended with {process.returncode}"
        return answers(url)

    try:
        until(healthy, seconds)
        yield process
    finally:
        with suppress(ProcessLookupError):  # it has ended
            os.killpg(process.pid, signal.SIGTERM)  # and its workers
        process.wait(30)
