"""`citer serve` as a process: from the registry, through a promotion, to its end."""

import signal
import sys
from pathlib import Path

import httpx
import pytest

from flows.tracking.registry import promote
from tests.flows.project import register_new
from tests.flows.servers import free_port, serving, until
from tests.flows.tracking.registered import CHAMPION, holder

pytestmark = pytest.mark.slow
PROGRAM = "from citer.cli.main import main; main()"


def test_a_server_takes_up_a_promotion_and_drains_at_its_end(registered: Path) -> None:
    register_new(2)
    promote(1)
    url = f"http://127.0.0.1:{(port := free_port())}"
    options = ["--router", CHAMPION, "--port", str(port), "--poll", "0.2"]
    command = [sys.executable, "-c", PROGRAM, "serve", *options]
    with serving(command, {"CITER_API_KEYS": "secret"}, url) as process:
        assert ask(url, "none").status_code == 401
        assert ask(url).json()["system_fingerprint"] == "citer-router/1"
        promote(2)
        assert holder("champion") == 2
        until(lambda: ask(url).json()["system_fingerprint"] == "citer-router/2", 120)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def ask(url: str, key: str = "secret") -> httpx.Response:
    body = {"model": "citer-router", "messages": [{"role": "user", "content": "What is 3 + 4?"}]}
    headers = {"Authorization": f"Bearer {key}"}
    return httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers, timeout=60)
