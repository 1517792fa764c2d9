"""Requests over HTTP to `mlflow models serve`."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.flows.servers import free_port, serving

pytestmark = pytest.mark.slow


def test_a_bad_row_gets_its_error_and_a_bad_call_gets_one_sentence(registered: Path) -> None:
    url = f"http://127.0.0.1:{(port := free_port())}"
    model = ["-m", "models:/citer-router@champion", "--env-manager", "local"]
    command = ["mlflow", "models", "serve", *model, "-p", str(port)]
    database = {"MLFLOW_TRACKING_URI": f"sqlite:///{registered}/mlruns/mlflow.db"}
    with serving(command, database, url):
        rows = ["What is 3 + 4?", {"question": "Which one?"}, "Why? " * 500, {"problem": "1 + 1?"}]
        good, bad, long, last = ask(url, {"inputs": rows}).json()["predictions"]
        assert good["tokens"] > 0 < last["tokens"]
        assert good["error"] is last["error"] is None
        assert bad["error"].startswith("choices: None; expected")
        assert "expected at most 1024, the models' context" in long["error"]
        assert bad["completion"] is long["completion"] is None
        for body in ([], {"questions": ["1 + 1?"]}, {"dataframe_split": 3}):
            refused = ask(url, body)
            assert refused.status_code == 400
            assert refused.json()["message"]
            assert "stack_trace" not in refused.json()
            assert str(registered) not in refused.text
        huge, after = (ask(url, {"inputs": [row]}).json() for row in ("Why?" * 2_500_000, rows[0]))
        assert huge["predictions"][0]["error"].startswith("question: 10,000,000 characters, ")
        assert after["predictions"] == [good]


def ask(url: str, body: Any) -> httpx.Response:
    return httpx.post(f"{url}/invocations", json=body, timeout=60)
