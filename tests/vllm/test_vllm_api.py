"""OpenAI's client against a real `vllm serve` that routes."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI

from citer.config.params import SHIPPED, load_params
from citer.data.problems import write_problems
from citer.data.prompts import PromptSettings
from citer.errors import InputError
from citer.models.folder import PairFolder
from citer.pairs.budget import changed
from citer.stages import paths
from citer.stages.certify import certify
from tests.flows.servers import until
from tests.vllm.api import (
    KEY,
    NEEDS_VLLM,
    client,
    counters,
    documented_chat,
    logged,
    prompts,
    routed_server,
)
from tests.vllm.offline import LLM, SLM, questions, wide_slm

pytestmark = NEEDS_VLLM
LLM_ALONE, EXACT = "score 1", "risk 0.5 audit 1"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("server")


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    with routed_server(folder) as address:
        yield address


@pytest.fixture(scope="module")
def api(url: str) -> OpenAI:
    return client(url)


def ask(api: OpenAI, prompt: str, rule: str | None = None, **options: Any) -> Any:
    options = {"max_tokens": 128, "temperature": 0} | options
    extra = {"citer": {"rule": rule}} if rule else {}
    return api.completions.create(model="llm", prompt=prompt, extra_body=extra, **options)


def spent(reply: Any) -> dict[str, Any]:
    """Return what vLLM itself says of the drafts of one sequence."""
    metrics: dict[str, Any] = reply.metrics["speculative_decoding"]
    return metrics


def test_a_chat_is_routed_by_the_rule_of_the_server(api: OpenAI) -> None:
    chat = [{"role": "user", "content": questions(1)[0].question}]
    reply = api.chat.completions.create(model="llm", messages=chat, max_tokens=128, temperature=0)
    assert "The answer is" in reply.choices[0].message.content
    assert reply.choices[0].finish_reason == "stop"
    assert 0 < spent(reply)["num_spec_steps"] < reply.usage.completion_tokens
    assert spent(reply)["num_accepted_draft_tokens"] > 0


def test_the_documented_chat_is_answered_correctly(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    program = documented_chat().replace("http://127.0.0.1:8000", url).replace('"none"', repr(KEY))
    exec(program.replace("risk 0.8 audit 0.1", EXACT))  # the router's weights are random
    assert r"\boxed{38}" in capsys.readouterr().out


def test_the_answers_of_chats_are_logged_with_their_audits(api: OpenAI, folder: Path) -> None:
    chat = [{"role": "user", "content": questions(2)[1].question}]
    whole = api.chat.completions.create(model="llm", messages=chat, temperature=0)
    parts = api.chat.completions.create(model="llm", messages=chat, temperature=0, stream=True)
    text = "".join(part.choices[0].delta.content or "" for part in parts)

    def rows() -> list[dict[str, Any]]:
        return [row for row in logged(folder / "log") if row["question"] == chat[0]["content"]]

    until(lambda: len(rows()) == 2, 30)
    assert [row["completion"] for row in rows()] == [whole.choices[0].message.content, text]
    for row in rows():
        assert len(row["token_ids"]) == whole.usage.completion_tokens
        assert len(row["audited"]) >= spent(whole)["num_accepted_draft_tokens"] > 0
        assert row["audited"] == sorted(set(row["audited"]))


def test_a_stream_has_the_text_and_the_usage_of_the_whole_reply(api: OpenAI) -> None:
    [prompt] = prompts(1)
    whole = ask(api, prompt)
    events = list(ask(api, prompt, stream=True, stream_options={"include_usage": True}))
    assert "".join(e.choices[0].text for e in events if e.choices) == whole.choices[0].text
    [last] = [spent(e) for e in events if e.usage]
    assert last == {name: value for name, value in spent(whole).items() if value is not None}


def test_a_request_has_its_own_rule(api: OpenAI) -> None:
    [prompt] = prompts(1)
    alone, exact = ask(api, prompt, LLM_ALONE), ask(api, prompt, EXACT)
    assert spent(alone)["num_spec_steps"] == 0
    assert exact.choices[0].text == alone.choices[0].text
    assert 0 < spent(exact)["num_spec_steps"] < alone.usage.completion_tokens
    assert spent(ask(api, prompt, "every 1"))["num_accepted_draft_tokens"] > 0


def test_sampled_drafts_stand_without_audits(api: OpenAI) -> None:
    reply = ask(api, prompts(1)[0], "every 4", temperature=1, max_tokens=20, seed=2**63 - 1)
    assert spent(reply)["num_accepted_draft_tokens"] == 4 * spent(reply)["num_spec_steps"] > 0


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        ({"rule": "risk 2"}, "'risk 2': expected `score τ`"),
        ({"rle": "risk 0.5"}, 'expected {"rule": RULE}'),
        ("risk 0.5", 'expected {"rule": RULE}'),
    ],
)
def test_what_is_not_valid_is_refused_in_openais_form(
    api: OpenAI, asked: Any, complaint: str
) -> None:
    chat: Any = [{"role": "user", "content": "?"}]
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError, match=r"citer: ") as refused:
            api.chat.completions.create(
                model="llm", messages=chat, stream=stream, extra_body={"citer": asked}
            )
        assert complaint in refused.value.body["message"]  # type: ignore[index, call-overload]
        assert refused.value.param == "citer"


def test_what_audits_found_is_at_metrics(url: str, api: OpenAI) -> None:
    before = counters(url).get("citer_total audited", 0)
    ask(api, prompts(1)[0], EXACT)
    until(lambda: counters(url).get("citer_total audited", 0) > before, 30)
    assert counters(url)["citer_total drafted"] >= counters(url)["citer_total accepted"] > 0


def test_a_client_that_leaves_ends_its_request_and_no_other(url: str, api: OpenAI) -> None:
    [prompt] = prompts(1)
    slow = {"ignore_eos": True, "citer": {"rule": LLM_ALONE}}
    endless = {"max_tokens": 80, "stream": True, "stream_options": {"include_usage": True}}
    before = counters(url)["vllm:generation_tokens_total"]
    stays, leaves = (
        api.completions.create(
            model="llm", prompt=prompt, temperature=0, extra_body=slow, **endless
        )
        for _ in range(2)
    )
    next(iter(leaves))
    leaves.close()
    *_, last = stays
    assert last.usage.completion_tokens == 80
    until(lambda: counters(url)["vllm:num_requests_running"] == 0, 60)
    assert counters(url)["vllm:generation_tokens_total"] - before < 2 * 80


def test_24_clients_at_once_get_the_answers_of_one(api: OpenAI) -> None:
    asked = prompts(24)

    def answers(rule: str) -> list[str]:
        with ThreadPoolExecutor(24) as clients:
            replies = clients.map(lambda prompt: ask(api, prompt, rule), asked)
            return [reply.choices[0].text for reply in replies]

    assert answers(EXACT) == answers(LLM_ALONE)


def test_a_rule_is_certified_through_the_server(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four questions cannot certify what loses none of them."""
    pair = {"slm": str(SLM), "llm": str(LLM), "dtype": "float32"}
    params = changed(load_params(SHIPPED), {f"pair.{name}": each for name, each in pair.items()})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CITER_LLM_API_KEY", KEY)
    paths.REFERENCES.mkdir(parents=True)
    write_problems(paths.referenced("validation"), questions(4), {})
    assert not certify(params, url, EXACT)
    shown = capsys.readouterr().out
    assert "and the routed answer is wrong on 0 of them" in shown.replace("\n", " ")
    with pytest.raises(InputError, match=r"'risk 2': expected `score τ`"):
        certify(params, url, "risk 2")


def test_the_stop_texts_of_the_routers_card_end_answers(tmp_path: Path) -> None:
    stop = PromptSettings(stop=("coins each",))
    template = PairFolder(wide_slm(tmp_path), LLM, stop).prompts.digest
    with routed_server(tmp_path, prompts=stop.model_dump(), template=template) as url:
        reply = ask(client(url), prompts(1)[0], EXACT)
    assert reply.choices[0].finish_reason == "stop"
    assert "coins each" not in reply.choices[0].text
    assert reply.choices[0].text.strip()
