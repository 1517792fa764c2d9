"""Answers over HTTP, by the openai client: those of `Deployment.replies`, whole and in pieces."""

import asyncio
import random
from dataclasses import replace
from typing import Any

import openai
import pytest

from citer.config.params import SamplingParams
from citer.data.importing import parse_question
from citer.decoding.answer import Request
from citer.models.pair import Pair
from citer.models.router import Head, Router
from citer.models.sampling import ALL_GREEDY, Sampler
from citer.rule import Rule
from citer.serving.untrained import NO_HEAD
from tests.server.running import QUESTIONS, RULE, Running, asked, deployed, routing, running

SAMPLED = {"temperature": 0.9, "top_p": 0.95, "seed": 5, "extra_body": {"top_k": 40}}


def expected(
    pair: Pair, rule: Rule = RULE, sampler: Sampler = ALL_GREEDY, limit: int | None = None
) -> dict[str, dict[str, Any]]:
    """Return the fields of the replies of a batch call, by question."""
    problems = [parse_question({"problem": each}, ["math"]) for each in QUESTIONS]
    deployment = replace(deployed(pair), rule=rule)
    limits = deployment.engine.limits
    deployment.engine.limits = replace(limits, max_new_tokens=limit or limits.max_new_tokens)
    replies = deployment.replies(problems, sampler=sampler)
    return {reply.problem.question: reply.fields for reply in replies}


def found(reply: Any) -> dict[str, Any]:
    [choice] = reply.choices
    counts = {k: v for k, v in routing(reply).items() if k not in ("version", "rule", "bytes")}
    truncated = choice.finish_reason == "length"
    return {"completion": choice.message.content, "truncated": truncated} | counts


def streamed(client: openai.OpenAI, **fields: Any) -> tuple[str, list[Any]]:
    chunks = list(client.chat.completions.create(**asked(**fields, stream=True)))
    return "".join(c.choices[0].delta.content for c in chunks if c.choices), chunks


@pytest.mark.parametrize("seed", [0, 1])
def test_answers_do_not_depend_on_the_order_of_arrival(
    kin: Pair, server: Running, seed: int
) -> None:
    client = openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
    order = random.Random(seed).sample(QUESTIONS, len(QUESTIONS))

    async def ask_all() -> list[Any]:
        calls = (client.chat.completions.create(**asked(question)) for question in order)
        return await asyncio.gather(*calls)

    replies = dict(zip(order, asyncio.run(ask_all()), strict=True))
    assert {question: found(reply) for question, reply in replies.items()} == expected(kin)
    assert len({reply.choices[0].message.content for reply in replies.values()}) > 6
    assert {reply.system_fingerprint for reply in replies.values()} == {"tiny/1"}


def test_a_sampled_answer_is_that_of_its_seed(kin: Pair, client: openai.OpenAI) -> None:
    sampler = Sampler(SamplingParams(temperature=0.9, top_p=0.95, top_k=40), seed=5)
    own = expected(kin, sampler=sampler)
    assert own != expected(kin)
    for question in QUESTIONS[:4]:
        reply = client.chat.completions.create(**asked(question, **SAMPLED))
        assert found(reply) == own[question]


def test_the_likeliest_token_alone_is_the_greedy_one(kin: Pair, client: openai.OpenAI) -> None:
    extra = {"top_k": 1, "citer": {"rule": "score 1"}}  # others see the noise
    reply = client.chat.completions.create(**asked(QUESTIONS[0], temperature=5, extra_body=extra))
    assert found(reply) == expected(kin, Rule("score", 1.0))[QUESTIONS[0]]


def test_without_a_seed_samples_differ(client: openai.OpenAI) -> None:
    sampled = asked(QUESTIONS[0], temperature=5)
    texts = {client.chat.completions.create(**sampled).choices[0].message.content for _ in range(4)}
    assert len(texts) > 1


@pytest.mark.parametrize("rule", ["score 1", "risk 0.9 audit 1", "every 3 audit 0.5"])
def test_a_request_may_have_a_rule_of_its_own(kin: Pair, client: openai.OpenAI, rule: str) -> None:
    own = expected(kin, Rule.parse(rule))
    for question in QUESTIONS[:3]:
        extra = {"citer": {"rule": rule, "task": "math"}}
        reply = client.chat.completions.create(**asked(question, extra_body=extra))
        assert found(reply) == own[question]
        assert routing(reply)["rule"] == str(Rule.parse(rule))


@pytest.mark.parametrize("question", QUESTIONS[:6])
def test_the_pieces_of_a_stream_are_the_whole_text(client: openai.OpenAI, question: str) -> None:
    whole = client.chat.completions.create(**asked(question))
    text, chunks = streamed(client, question=question)
    assert text == whole.choices[0].message.content
    assert len(chunks) > 2
    assert [c.choices[0].finish_reason for c in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason
    assert routing(chunks[-1]) == routing(whole)
    assert {chunk.system_fingerprint for chunk in chunks} == {"tiny/1"}


def test_openais_client_joins_a_stream_to_the_whole_message(client: openai.OpenAI) -> None:
    text = client.chat.completions.create(**asked(QUESTIONS[0])).choices[0].message.content
    assert text
    ends = asked(QUESTIONS[0], stop=text[-3:])  # the client raises an error for `length`
    with client.chat.completions.stream(**ends) as stream:
        joined = stream.get_final_completion().choices[0].message
    assert (joined.role, joined.content) == ("assistant", text[: text.index(text[-3:])])


def test_a_stream_ends_with_the_usage_if_asked(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(**asked(QUESTIONS[0]))
    options = {"include_usage": True}
    _, chunks = streamed(client, question=QUESTIONS[0], stream_options=options)
    assert chunks[-1].choices == []
    assert chunks[-1].usage == whole.usage
    assert whole.usage
    assert whole.usage.completion_tokens == routing(whole)["tokens"]


def test_a_stop_text_ends_an_answer_before_it(client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(**asked(QUESTIONS[1])).choices[0].message.content
    assert whole
    stop = whole[4:7]
    cut = whole[: whole.index(stop)]
    for given in (stop, ["nowhere to be found", stop]):
        reply = client.chat.completions.create(**asked(QUESTIONS[1], stop=given))
        assert (reply.choices[0].message.content, reply.choices[0].finish_reason) == (cut, "stop")
        text, _ = streamed(client, question=QUESTIONS[1], stop=given)
        assert text == cut


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_an_answer_has_at_most_the_tokens_that_are_asked(
    kin: Pair, client: openai.OpenAI, name: str
) -> None:
    own = expected(kin, limit=3)
    for question in QUESTIONS[:4]:
        reply = client.chat.completions.create(**asked(question, **{name: 3}))
        assert found(reply) == own[question]


def test_a_text_is_completed(kin: Pair, client: openai.OpenAI) -> None:
    text = "Problem: 2 + 2"
    whole, listed = (
        client.completions.create(model="tiny", prompt=each) for each in (text, [text])
    )
    assert whole.choices[0].text == listed.choices[0].text
    made = deployed(kin)
    request = Request("", tuple(kin.tokenizer(text).input_ids))
    [own] = made.engine.decode([request], made.policy(RULE))
    assert whole.choices[0].text == kin.text(own.token_ids)
    assert whole.usage
    assert whole.usage.prompt_tokens == len(request.prompt_ids)
    chunks = client.completions.create(model="tiny", prompt=text, stream=True)
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text


def test_certainty_scores_a_rule_of_a_request_where_no_head_is_trained(kin: Pair) -> None:
    untrained = replace(deployed(kin), router=Router({NO_HEAD: Head(None)}), rule=Rule("every", 4))
    named = asked(QUESTIONS[0], extra_body={"citer": {"rule": "risk 0.7 audit 1"}})
    with running(untrained) as server:
        reply = server.client().chat.completions.create(**named)
    assert routing(reply)["rule"] == "risk 0.7 audit 1.0 by probability"
