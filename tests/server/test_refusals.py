"""Requests that are not answered: OpenAI's error form, and the status that its clients expect."""

import json
from typing import Any

import httpx
import openai
import pytest

from citer.errors import LONGEST, InputError
from citer.models.pair import Pair
from citer.serving.server.fields import Chat, read
from citer.serving.server.run import accepted_keys, listen
from tests.flows.servers import until
from tests.server.running import QUESTIONS, Running, asked, deployed, running

OTHER = "not a field that is supported"
REFUSED = [
    ({"extra_body": {"citer": {"rule": "risc 0.5"}}}, "citer.rule: 'risc 0.5': expected `score τ`"),
    ({"extra_body": {"citer": {"task": "chess"}}}, "citer.task: 'chess'; expected 'math', 'mc'"),
    ({"extra_body": {"citer": {"ruel": "x"}}}, "citer: unknown key 'ruel'; expected rule, task"),
    ({"extra_body": {"citer": {"written": True}}}, "citer.written: True; expected `stream`, too"),
    ({"extra_body": {"guided_json": {}}}, f"guided_json: {{}}: {OTHER}"),
    ({"n": 2}, "n: 2: expected 1"),
    ({"presence_penalty": 0.5}, "presence_penalty: 0.5: expected 0"),
    ({"logit_bias": {"5": 1}}, "logit_bias: {'5': 1}: expected {}"),
    ({"response_format": {"type": "json_object"}}, "response_format: {'type': 'json_object'}"),
    ({"temperature": -1}, "temperature: -1: expected greater than or equal to 0"),
    ({"temperature": 1, "top_p": 0}, "top_p: 0: expected greater than 0"),
    ({"top_p": 0.5}, "top_p: expected a temperature, too"),
    ({"max_tokens": 0}, "max_tokens: 0: expected greater than 0"),
    ({"max_tokens": 3, "max_completion_tokens": 4}, "max_tokens: given besides max_completion_"),
    ({"stop": ["a"] * 17}, "expected at most 16 items"),
    ({"stop": ["a", ""]}, "stop.1: '': expected at least 1"),
    ({"logprobs": True}, "logprobs: not supported; `vllm serve` has them"),
    ({"top_logprobs": 2}, "top_logprobs: 2: expected 0"),
    ({"messages": []}, "messages: []; expected a list of turns"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.role: 'tool'; expected"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages.0.content:"),
    ({"messages": [{"role": "user", "content": [{"type": "text", "text": 1}]}]}, "'text': 1, "),
    *(
        (
            {"messages": [{"role": role, "content": "x"}, {"role": "user", "content": "y"}]},
            "messages: turns before the question; expected pair.prompt: chat",
        )
        for role in ("system", "developer")
    ),
    ({"max_tokens": 2000}, "tokens and up to 2000 more (max_new_tokens), expected at most 1024"),
]


@pytest.mark.parametrize(("fields", "message"), REFUSED)
def test_what_would_change_the_answer_and_is_not_supported_is_refused(
    server: Running, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        server.client().chat.completions.create(**asked(QUESTIONS[0]) | fields)
    assert message in caught.value.body["message"]  # type: ignore[index]
    assert caught.value.type == "invalid_request_error"
    assert server.service.worker.clients == len(server.engine._sequences) == 0


def test_what_changes_no_answer_is_ignored(client: openai.OpenAI) -> None:
    plain = client.chat.completions.create(**asked(QUESTIONS[0]))
    part = {"type": "text", "text": QUESTIONS[0], "cache_control": {"type": "ephemeral"}}
    parts = [{"role": "user", "name": "Jana", "content": [part], "tool_calls": []}]
    harmless = {
        "n": 1,
        "stream": None,
        "stop": None,
        "user": "me",
        "presence_penalty": 0,
        "top_p": 1,
        "modalities": ["text"],
        "metadata": {"a": "b"},
        "extra_body": {"prompt_cache_retention": "24h"},
    }
    reply = client.chat.completions.create(model="tiny", messages=parts, **harmless)
    assert reply.choices[0].message.content == plain.choices[0].message.content


def test_a_page_break_in_a_chat_is_a_line_break() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "Page 1\fPage 2"}]}
    asked = read(Chat, json.dumps(body).encode())
    assert asked.problem(["math"]).question == "Page 1\nPage 2"


def test_a_model_is_found_by_its_name_alone(client: openai.OpenAI) -> None:
    assert client.models.retrieve("tiny").id == "tiny"
    with pytest.raises(openai.NotFoundError, match="model: 'huge'; expected 'tiny'"):
        client.models.retrieve("huge")


def test_proxies_may_not_hold_a_stream_back(client: openai.OpenAI) -> None:
    create = client.chat.completions.with_streaming_response.create
    with create(**asked(QUESTIONS[0], stream=True)) as reply:
        assert reply.headers["cache-control"] == "no-cache"
        assert reply.headers["x-accel-buffering"] == "no"
        reply.read()


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        (["a", "b"], "prompt: ['a', 'b']: expected a valid string"),
        ("", "prompt: no tokens, expected a prompt"),
    ],
)
def test_a_prompt_is_one_text(client: openai.OpenAI, prompt: Any, message: str) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="tiny", prompt=prompt)
    assert message in caught.value.body["message"]  # type: ignore[index]
    assert caught.value.code is None


def test_a_prompt_that_is_too_long_has_openais_code(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="expected at most 1024") as caught:
        client.chat.completions.create(**asked("Why? " * 700))
    assert caught.value.code == "context_length_exceeded"


def test_a_prompt_that_is_far_too_long_is_refused_before_it_is_encoded(
    client: openai.OpenAI,
) -> None:
    endless = "Why?" * 25_000
    with pytest.raises(openai.BadRequestError, match="prompt: 100,000 characters, exp") as chat:
        client.chat.completions.create(**asked(endless))
    with pytest.raises(openai.BadRequestError, match="prompt: 100,000 characters, exp") as text:
        client.completions.create(model="tiny", prompt=endless)
    assert chat.value.code == text.value.code == "context_length_exceeded"


def test_a_prompt_that_is_far_too_long_is_refused_before_it_is_cleaned(
    client: openai.OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile no other request would get a token."""
    monkeypatch.setattr(Chat, "problem", pytest.fail)
    for content in ("Why?" * 25_000, [{"type": "text", "text": "Why?" * 5_000}] * 5):
        with pytest.raises(openai.BadRequestError, match="prompt: 100,000 characters, exp"):
            client.chat.completions.create(**asked("") | {"messages": [turn(content)]})
    many = json.dumps({"model": "tiny", "messages": [turn("Why?")] * 4097})
    with pytest.raises(InputError, match=r"^messages: .* expected at most 4096"):
        read(Chat, many.encode())


def turn(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def test_a_completion_has_no_log_probabilities(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="logprobs: not supported"):
        client.completions.create(model="tiny", prompt="a", logprobs=0)


def test_another_model_is_not_found_and_a_refusal_repeats_no_long_text(
    client: openai.OpenAI,
) -> None:
    with pytest.raises(openai.NotFoundError, match=r"model: 'xxx.*; expected 'tiny'") as caught:
        client.chat.completions.create(model="x" * 5000, messages=asked("1?")["messages"])
    assert len(caught.value.body["message"]) <= LONGEST  # type: ignore[index]


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"{", 400, "top level: not JSON: EOF while parsing an object"),
        (json.dumps({"messages": []}).encode(), 400, "model: missing"),
        (b" " * 200_000, 413, "body: expected at most 131,072 bytes"),
    ],
)
def test_a_body_that_is_no_request_is_refused(
    server: Running, body: bytes, status: int, message: str
) -> None:
    headers = {"Content-Type": "application/json"}
    reply = httpx.post(f"{server.url}/v1/chat/completions", content=body, headers=headers)
    assert reply.status_code == status
    assert message in reply.json()["error"]["message"]


def test_unknown_paths_have_one_label_and_openais_form(server: Running) -> None:
    reply = httpx.get(f"{server.url}/v1/engines")
    assert (reply.status_code, reply.json()["error"]["type"]) == (404, "invalid_request_error")
    # A request is counted when its reply was sent.
    until(lambda: server.metric("citer_requests_total", path="other", status="404"), 30)


def test_only_a_known_key_may_ask(kin: Pair) -> None:
    with running(deployed(kin), keys=["first", "second"]) as server:
        for key in ("none", "firs", "first2"):
            with pytest.raises(openai.AuthenticationError) as caught:
                server.client(key).models.list()
            assert caught.value.code == "invalid_api_key"
        assert [model.id for model in server.client("second").models.list()] == ["tiny"]
        reply = server.client("first").chat.completions.create(**asked(QUESTIONS[0]))
        assert reply.choices[0].message.content
        assert httpx.get(f"{server.url}/health").is_success


def test_a_key_may_have_any_letters(kin: Pair) -> None:
    with running(deployed(kin), keys=["Schlüssel"]) as server:
        headers = {"Authorization": "Bearer Schlüssel".encode()}
        assert httpx.get(f"{server.url}/v1/models", headers=headers).is_success


def test_a_server_that_others_reach_and_a_list_without_a_key_need_keys(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("CITER_API_KEYS", raising=False)
    assert accepted_keys("127.0.0.1") == []
    with pytest.raises(InputError, match=r"^--host 192.0.2.7: expected CITER_API_KEYS=KEY,… in"):
        accepted_keys("192.0.2.7")
    monkeypatch.setenv("CITER_API_KEYS", "a, b,")
    assert accepted_keys("192.0.2.7") == ["a", "b"]
    for given in ("", " , "):
        monkeypatch.setenv("CITER_API_KEYS", given)
        with pytest.raises(InputError, match=r"^CITER_API_KEYS: no key; expected"):
            accepted_keys("127.0.0.1")


def test_a_port_that_is_taken_is_reported_in_one_line(server: Running) -> None:
    port = int(server.url.rpartition(":")[2])
    with pytest.raises(InputError, match=f"--host 127.0.0.1 --port {port}: .*in use"):
        listen("127.0.0.1", port)
