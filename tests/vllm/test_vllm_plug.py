"""The plugin in a real vLLM that starts: without settings of citer, and with bad ones."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.vllm.api import ENVIRONMENT, command, write_router
from tests.vllm.offline import LLM, PYTHON, SLM

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(not PYTHON, reason="VLLM_PYTHON: the python of an environment with vLLM"),
]
UNROUTED = f"""
import sys
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.chat_completion.serving import OpenAIServingChat
from vllm.v1.engine.async_llm import AsyncLLM

config = AsyncEngineArgs(model={str(LLM)!r}, dtype="float32").create_engine_config()
assert hasattr(AsyncEngineArgs.create_engine_config, "citer_original"), "the plugin is loaded"
for owner in (ChatCompletionRequest, OpenAIServingChat, AsyncLLM):
    for name in dir(owner):
        assert not hasattr(getattr(owner, name, None), "citer_original"), name
assert config.scheduler_config.scheduler_cls is None
assert not config.parallel_config.worker_extension_cls
assert "citer.vllm.loading" not in sys.modules
"""


def run(line: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(line, env=os.environ | ENVIRONMENT, capture_output=True, text=True)


def test_a_server_without_settings_of_citer_is_unchanged() -> None:
    ended = run([PYTHON, "-c", UNROUTED])
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (None, "no settings of citer, expected --additional-config"),
        ({"rule": "risk 2"}, "--additional-config: citer: rule: 'risk 2': expected"),
        ({"slm": str(LLM)}, "expected two models"),
    ],
)
def test_bad_settings_are_refused_in_one_line(
    tmp_path: Path, changes: dict[str, Any] | None, complaint: str
) -> None:
    router = str(write_router(tmp_path / "router"))
    settings = {"router": router, "slm": str(SLM), "rule": "risk 0.9", **(changes or {})}
    line = command(settings)
    # without --additional-config
    check_refused(run(line[:-2] if changes is None else line), complaint)


def test_a_damaged_router_is_refused_in_one_line(tmp_path: Path) -> None:
    router = write_router(tmp_path / "router")
    weights = router / "router.safetensors"
    weights.write_bytes(weights.read_bytes()[:-9])
    line = command({"router": str(router), "slm": str(SLM), "rule": "risk 0.9"})
    check_refused(run(line), "router.safetensors: not the weights that router.json describes")


def check_refused(ended: subprocess.CompletedProcess[str], complaint: str) -> None:
    assert ended.returncode != 0
    assert "Traceback" not in ended.stderr
    last = ended.stderr.splitlines()[-1]
    assert "citer: " in last
    assert complaint in last
