"""Streams that say who wrote each token, and the bytes of an answer."""

import json
from typing import Any

import httpx
import pytest

from citer.data.importing import parse_question
from citer.decoding.answer import Answer, Request
from citer.decoding.engine import Engine
from citer.decoding.policy import weight_bytes
from citer.evaluation.cost import Prices
from citer.models.pair import Pair
from citer.rule import Rule
from tests.server.running import MAX_NEW_TOKENS, QUESTIONS, Running, asked, deployed

RULES = ["score 0.5", "every 5 audit 1", "risk 0.5 audit 0.3", "every 3 audit 1 from both"]


def alone(pair: Pair, question: str, rule: str) -> tuple[Answer, int]:
    """Return the answer of an engine that has no other request, and the bytes that it moved."""
    made = deployed(pair)
    policy = made.policy(Rule.parse(rule))
    prompt_ids = tuple(pair.prompts.prompt_ids(parse_question({"problem": question}, ["math"])))
    engine = Engine(pair, 1, MAX_NEW_TOKENS)
    [answer] = engine.decode([Request("", prompt_ids)], policy)
    prices = Prices.of(pair, weight_bytes(policy.scorer))
    return answer, prices.moved(engine.slm_work, engine.llm_work)


def streamed(server: Running, **fields: Any) -> list[dict[str, Any]]:
    reply = httpx.post(f"{server.url}/v1/chat/completions", json=asked(**fields, stream=True))
    events = [line.removeprefix("data: ") for line in reply.text.split("\n\n")]
    assert events[-2:] == ["[DONE]", ""]
    return [json.loads(event) for event in events[:-2]]


@pytest.mark.parametrize("rule", RULES)
def test_a_stream_says_who_wrote_each_token(kin: Pair, server: Running, rule: str) -> None:
    taken_back = 0
    for question in QUESTIONS[:4]:
        answer, moved = alone(kin, question, rule)
        _, *chunks, last = streamed(
            server, question=question, citer={"rule": rule, "written": True}
        )
        parts = [chunk["citer"]["written"] for chunk in chunks]
        texts = ["".join(token["text"] for token in part) for part in parts]
        assert texts == [chunk["choices"][0]["delta"]["content"] for chunk in chunks]
        assert "".join(texts) + last["choices"][0]["delta"]["content"] == kin.text(answer.token_ids)
        written = [token for part in parts for token in part]
        assert tuple(token["by"] for token in written) == answer.writers
        rejected = {n: token["rejected"] for n, token in enumerate(written) if "rejected" in token}
        firsts = {v.kept: v.disagreements[-1].slm_token for v in answer.visits if v.rejects}
        assert firsts.keys() <= rejected.keys()
        for place, draft in firsts.items():
            text = kin.tokenizer.decode([draft], skip_special_tokens=True).removesuffix("\ufffd")
            assert rejected[place].startswith(text)
        named = {"version": "tiny/1", "rule": str(Rule.parse(rule))}
        assert last["citer"] == named | answer.counts._asdict() | {"bytes": moved}
        taken_back += len(rejected)
    assert (taken_back > 0) == ("audit" in rule)


def test_only_streams_that_ask_have_the_writers(server: Running) -> None:
    *chunks, last = streamed(server, question=QUESTIONS[0])
    assert not any("citer" in chunk for chunk in chunks)
    assert "written" not in last["citer"]


def test_a_text_completion_has_them_too(kin: Pair, server: Running) -> None:
    fields = {"model": "tiny", "prompt": "2 + 2", "citer": {"written": True}, "stream": True}
    reply = httpx.post(f"{server.url}/v1/completions", json=fields)
    first = json.loads(reply.text.partition("\n\n")[0].removeprefix("data: "))
    [choice], [token, *_] = first["choices"], first["citer"]["written"]
    assert choice["text"].startswith(token["text"])
