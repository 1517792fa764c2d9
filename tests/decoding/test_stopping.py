"""Stop texts end an answer at the same token, whichever model wrote it and however it is routed."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from citer.data.prompts import PromptSettings
from citer.decoding.answer import Answer
from citer.decoding.engine import Engine
from citer.decoding.policy import LLM_ALONE, SLM_ALONE, Policy, always_slm
from citer.errors import InputError
from citer.models.pair import Pair
from citer.rule import Rule
from tests.decoding.reference import Uncached, random_scorer, rounded
from tests.decoding.test_audits import MAX_NEW_TOKENS, REQUESTS

POLICIES = [
    SLM_ALONE,
    LLM_ALONE,
    Policy(random_scorer, Rule("score", 0.5)),
    Policy(random_scorer, Rule("risk", 0.5, 0.3)),
    Policy(random_scorer, Rule("risk", 0.2, 1)),
    Policy(always_slm, Rule("every", 4, 1)),
]


def with_stops(pair: Pair, *stop: str) -> Pair:
    settings = PromptSettings(tasks=pair.prompts.tasks, stop=stop)
    prompts = type(pair.prompts)(settings, pair.tokenizer, pair.eos_ids)
    return replace(pair, prompts=prompts)


def answers(pair: Pair, policies: Sequence[Policy]) -> list[Answer]:
    return list(Engine(pair, 3, MAX_NEW_TOKENS).sweep(REQUESTS, policies))


@pytest.fixture(scope="module")
def stopping(kin: Pair) -> Pair:
    """A pair of similar models whose stop texts stand in the middle of their answers."""
    kin = replace(kin, eos_ids=kin.eos_ids[:1])
    stops = set()
    for answer in answers(kin, [SLM_ALONE, LLM_ALONE]):
        text = kin.tokenizer.decode(answer.token_ids)
        place = len(text) // 2
        part = text[place : place + 3]
        if len(part) == 3 and "\ufffd" not in part:
            stops.add(part)
    assert len(stops) > 3
    return with_stops(kin, *sorted(stops))


def test_every_policy_stops_where_plain_decoding_does(stopping: Pair) -> None:
    requests = {request.key: request for request in REQUESTS}
    stopped = spanning = rejected = 0
    for answer in answers(stopping, POLICIES):
        plain = Uncached(stopping, requests[answer.key], answer.policy, MAX_NEW_TOKENS).run()
        assert list(answer.token_ids) == plain.written
        assert rounded(answer.visits) == rounded(plain.visits)
        assert answer.truncated != plain.complete()
        if plain.complete() and answer.token_ids[-1] not in stopping.eos_ids:
            stopped += 1
            last = stopping.tokenizer.decode(answer.token_ids[-1:])
            spanning += not any(stop in last for stop in stopping.prompts.stop)
            rejected += answer.counts.rejected
    assert min(stopped, spanning, rejected) > 0


def test_full_audits_give_the_llms_own_answer_with_its_stop(stopping: Pair) -> None:
    own = {a.key: a for a in answers(stopping, [LLM_ALONE])}
    for answer in answers(stopping, [policy for policy in POLICIES if policy.rule.audit == 1]):
        assert answer.token_ids == own[answer.key].token_ids
        assert answer.truncated == own[answer.key].truncated


def test_the_text_is_cut_before_the_stop(stopping: Pair) -> None:
    stopped = [
        a for a in answers(stopping, [LLM_ALONE]) if a.token_ids[-1] != 0 and not a.truncated
    ]
    assert stopped
    for answer in stopped:
        whole, text = stopping.tokenizer.decode(answer.token_ids), stopping.text(answer.token_ids)
        assert whole.startswith(text)
        assert any(whole[len(text) :].startswith(stop) for stop in stopping.prompts.stop)


def test_a_stop_text_may_begin_in_the_given_prefix(kin: Pair) -> None:
    kin = replace(kin, eos_ids=kin.eos_ids[:1])
    [whole] = Engine(kin, 1, 8).decode(REQUESTS[:1], LLM_ALONE)
    text = kin.tokenizer.decode(whole.token_ids[1:3])
    begun = replace(REQUESTS[0], prefix_ids=whole.token_ids[:2])
    [answer] = Engine(with_stops(kin, text), 1, 8).decode([begun], LLM_ALONE)
    assert (answer.token_ids, answer.truncated) == (whole.token_ids[2:3], False)


def test_an_answer_that_stops_at_its_last_allowed_token_is_complete(kin: Pair) -> None:
    kin = replace(kin, eos_ids=kin.eos_ids[:1])
    [whole] = Engine(kin, 1, 3).decode(REQUESTS[:1], LLM_ALONE)
    assert whole.truncated
    text = kin.tokenizer.decode(whole.token_ids)
    [answer] = Engine(with_stops(kin, text), 1, 3).decode(REQUESTS[:1], LLM_ALONE)
    assert (answer.token_ids, answer.truncated) == (whole.token_ids, False)


def test_a_request_may_have_stop_texts_and_a_limit_of_its_own(kin: Pair) -> None:
    kin = replace(kin, eos_ids=kin.eos_ids[:1])
    engine, asked = Engine(kin, 4, 8), REQUESTS[1]
    [whole] = engine.decode([asked], LLM_ALONE)
    stop = kin.tokenizer.decode(whole.token_ids[2:4])
    assert stop not in kin.tokenizer.decode(whole.token_ids[:3])
    requests = [
        replace(asked, key="stop", stop=(stop,)),
        replace(asked, key="limit", max_new_tokens=3),
        replace(asked, key="more", max_new_tokens=9),
        replace(asked, key="neither"),
    ]
    own = {answer.key: answer for answer in engine.decode(requests, LLM_ALONE)}
    assert (own["stop"].token_ids, own["stop"].truncated) == (whole.token_ids[:4], False)
    assert kin.text(own["stop"].token_ids, (stop,)) == kin.text(whole.token_ids[:2])
    assert (own["limit"].token_ids, own["limit"].truncated) == (whole.token_ids[:3], True)
    assert len(own["more"].token_ids) == 9
    assert own["neither"].token_ids == whole.token_ids


def test_a_limit_of_its_own_must_fit_the_context(kin: Pair) -> None:
    asked = replace(REQUESTS[0], max_new_tokens=kin.context)
    with pytest.raises(InputError, match=r"q0: 5 tokens and up to 1024 more .* at most 1024"):
        Engine(kin, 1, 8).submit(asked, LLM_ALONE)
