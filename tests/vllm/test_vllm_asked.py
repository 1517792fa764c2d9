"""What a request asks travels with it through vLLM, and nobody else can write it; without vLLM."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel

from citer.vllm import plugin
from citer.vllm.chats import Asked, ChatLog
from citer.vllm.loading import Engine as Models
from citer.vllm.loading import Served, Settings
from citer.vllm.swap import Live, Version

CHAT = [{"role": "user", "content": "How many?"}]
OWN, SERVERS = "score 0.5", "risk 0.9 audit 0.1"
PROTOCOL = "vllm.entrypoints.openai.{}.protocol"


@dataclass
class Params:
    """Stands for vLLM's SamplingParams."""

    extra_args: dict[str, Any] | None = None
    n: int = 1


class Request(BaseModel, extra="allow"):
    """Stands for vLLM's ChatCompletionRequest."""

    messages: list[dict[str, str]] = CHAT
    stop: list[str] = []
    stop_token_ids: list[int] = []
    ignore_eos: bool = False

    def to_sampling_params(self) -> Params:
        return Params()


class Engine:
    """Stands for vLLM's AsyncLLM. `rules` are those of the requests that it got."""

    def __init__(self) -> None:
        self.rules = list[str]()

    async def collective_rpc(self, method: str, args: Any) -> list[Any]:
        return [[]]

    async def generate(
        self, prompt: Any, sampling_params: Params, request_id: str, **_: Any
    ) -> AsyncIterator[Any]:
        self.rules.append((sampling_params.extra_args or {})["citer"]["rule"])
        choice = SimpleNamespace(text="4", token_ids=[1], finish_reason="stop")
        yield SimpleNamespace(outputs=[choice])


@dataclass
class Plugged:
    """An engine and an API that log chats by the plugin."""

    log: ChatLog
    engine: Engine = field(default_factory=Engine)

    def rule(self, params: Params) -> str:
        """Return the rule by which the engine answers."""

        async def answered() -> None:
            named = {"prompt": [1], "sampling_params": params, "request_id": "id"}
            async for _ in self.engine.generate(**named):  # type: ignore[attr-defined]
                pass
            await asyncio.gather(*self.log._storing)

        asyncio.run(answered())
        return self.engine.rules[-1]


@pytest.fixture
def logged() -> list[Any]:
    return []


@pytest.fixture
def plugged(monkeypatch: pytest.MonkeyPatch, logged: list[Any]) -> Plugged:
    monkeypatch.setattr(Request, "to_sampling_params", Request.to_sampling_params)  # is restored
    monkeypatch.setattr(Engine, "generate", Engine.generate)
    names = {"chat_completion": "ChatCompletion", "completion": "Completion"}
    for name, kind in (names | {"responses": "Responses"}).items():
        module(monkeypatch, PROTOCOL.format(name), **{f"{kind}Request": Request})
    module(monkeypatch, "vllm.exceptions", VLLMValidationError=ValueError)
    module(monkeypatch, "vllm.v1.engine.async_llm", AsyncLLM=Engine)
    log = ChatLog(("math",), logged.append)
    served = Served(SERVERS, ("stand",), 16, scored=True)
    models = Models("llm", "float32", "draft_model", "slm", 16)
    live = Live(Version("", Settings(rule=SERVERS), models, served, log))
    plugin._serve_rules(live)
    plugin._watch_requests(live)
    return Plugged(log)


def module(monkeypatch: pytest.MonkeyPatch, name: str, **content: Any) -> None:
    parts = name.split(".")
    for size in range(1, len(parts)):
        monkeypatch.setitem(sys.modules, ".".join(parts[:size]), ModuleType(parts[size - 1]))
    made = ModuleType(name)
    vars(made).update(content)
    monkeypatch.setitem(sys.modules, name, made)


def test_a_request_has_its_own_rule_each_time_that_it_is_run(
    plugged: Plugged, logged: list[Any]
) -> None:
    """`/v1/responses` runs it again after each call of a tool."""
    params = Request(citer={"rule": OWN}).to_sampling_params()
    assert [plugged.rule(params) for _ in range(2)] == [OWN, OWN]
    assert [reply.problem.question for reply in logged] == ["How many?"] * 2


@pytest.mark.parametrize(
    "forged",
    [
        "x",
        {"rule": OWN, "router": None},
        json.loads(json.dumps(Asked(rule=OWN))),
        None,
    ],
)
def test_what_a_client_writes_itself_is_neither_a_rule_nor_logged(
    plugged: Plugged, logged: list[Any], forged: Any
) -> None:
    """`/inference/v1/generate` passes it on, and `/v1/chat/completions/render` tells it."""
    assert plugged.rule(Params({"citer": forged, "other": 1})) == SERVERS
    assert plugged.rule(Params()) == SERVERS
    assert logged == []
