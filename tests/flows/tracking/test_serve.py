"""`citer serve` as a process: from the registry, through a promotion, to its end."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from flows.tracking.registry import promote
from tests.flows.project import register, retrain
from tests.flows.servers import free_port, until
from tests.flows.tracking.registered import CHAMPION, holder

pytestmark = pytest.mark.slow
PROGRAM = "from citer.cli.main import main; main()"


def test_a_server_takes_up_a_promotion_and_drains_at_its_end(registered: Path) -> None:
    retrain(2)
    register()
    promote(1)
    url = f"http://127.0.0.1:{(port := free_port())}"
    options = ["--router", CHAMPION, "--port", str(port), "--poll", "0.2"]
    environment = os.environ | {"CITER_API_KEYS": "secret"}
    command = [sys.executable, "-c", PROGRAM, "serve", *options]
    process = subprocess.Popen(command, env=environment)
    try:
        until(lambda: healthy(url, process), 180)
        assert ask(url, "none").status_code == 401
        assert ask(url).json()["system_fingerprint"] == "citer-router/1"
        promote(2)
        assert holder("champion") == 2
        until(lambda: ask(url).json()["system_fingerprint"] == "citer-router/2", 120)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    finally:
        process.kill()


def healthy(url: str, process: subprocess.Popen) -> bool:
    assert process.poll() is None, f"ended with {process.returncode}"
    try:
        return httpx.get(f"{url}/health").is_success
    except httpx.TransportError:
        return False


def ask(url: str, key: str = "secret") -> httpx.Response:
    body = {"model": "citer-router", "messages": [{"role": "user", "content": "What is 3 + 4?"}]}
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers, timeout=60)
