"""The plugin in a real vLLM that starts: without settings of citer, and with bad ones."""

import os
import subprocess
from pathlib import Path

from tests.vllm.api import ENVIRONMENT, NEEDS_VLLM, command, write_router
from tests.vllm.offline import LLM, PYTHON, wide_slm

pytestmark = NEEDS_VLLM
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
SHORTENED = """
from types import SimpleNamespace
from vllm.v1.core.sched.scheduler import Scheduler
from citer.vllm.loading import Served
from citer.vllm.scheduler import RoutedAsyncScheduler, RoutedScheduler

Scheduler.schedule = lambda self: [len(each.spec_token_ids) for each in self.running]
for kind in (RoutedScheduler, RoutedAsyncScheduler):
    own = object.__new__(kind)
    own._served = Served("audit 1", None, 16, scored=True)
    own.running = [
        SimpleNamespace(
            spec_token_ids=[-1] * 16,
            sampling_params=SimpleNamespace(extra_args={"citer": {"rule": rule}}),
        )
        for rule in ("audit 1", "every 3 audit 1", "risk 0.5 audit 1 cap 5", "score 1", "bad")
    ]
    assert own.schedule() == [16, 3, 5, 0, 0]
"""


def run(line: list[str], **more: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | ENVIRONMENT | more
    return subprocess.run(line, env=environment, capture_output=True, text=True)


def test_a_server_without_settings_of_citer_is_unchanged() -> None:
    ended = run([PYTHON, "-c", UNROUTED])
    assert ended.returncode == 0, ended.stderr


def test_a_request_has_no_more_places_for_drafts_than_its_rule_can_use() -> None:
    ended = run([PYTHON, "-c", SHORTENED])
    assert ended.returncode == 0, ended.stderr


def test_bad_settings_are_refused_in_one_line(tmp_path: Path) -> None:
    slm = wide_slm(tmp_path)
    settings = {"router": str(write_router(tmp_path / "router", slm)), "rule": "risk 0.9 cap 17"}
    check_refused(run(command(settings, slm)), "expected at most num_speculative_tokens, 16")


def test_a_damaged_router_is_refused_in_one_line(tmp_path: Path) -> None:
    slm = wide_slm(tmp_path)
    router = write_router(tmp_path / "router", slm)
    weights = router / "router.safetensors"
    weights.write_bytes(weights.read_bytes()[:-9])
    line = command({"router": str(router), "rule": "risk 0.9"}, slm)
    check_refused(run(line), "router.safetensors: not the weights that router.json describes")


def test_the_model_runner_v1_is_refused_in_one_line(tmp_path: Path) -> None:
    line = command({"rule": "audit 1"}, wide_slm(tmp_path))
    check_refused(run(line, VLLM_USE_V2_MODEL_RUNNER="0"), "the model runner V1")


def check_refused(ended: subprocess.CompletedProcess[str], complaint: str) -> None:
    assert ended.returncode != 0
    assert "Traceback" not in ended.stderr
    [last] = [line for line in ended.stderr.splitlines() if line.startswith("citer: ")]
    assert complaint in last
