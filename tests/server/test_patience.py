"""Patient requests: they wait for others, and begin again."""

import asyncio
from dataclasses import replace
from itertools import count

import pytest

from citer.decoding.answer import Answer
from citer.decoding.engine import Engine, Finished
from citer.decoding.policy import LLM_ALONE, routed
from citer.models.pair import Pair
from citer.rule import Rule
from citer.serving.server.worker import Broken, Ticket, Worker
from tests.decoding.test_engine import MAX_NEW_TOKENS, make_requests
from tests.heads import random_router


def patient(engine: Engine, number: int = 0) -> Ticket:
    request = make_requests(4)[number]
    return Ticket(engine, replace(request, patient=True), LLM_ALONE)


def steps(engine: Engine, rule: Rule, *beside: Ticket) -> tuple[int, tuple[int, ...]]:
    """Return after how many steps a request is answered, and the tokens of its answer."""
    policy = routed(random_router(engine.pair.slm.hidden_size), rule)
    others = [engine.submit(each.request, each.policy) for each in beside]
    own = engine.submit(make_requests(4)[1], policy)
    for number in count(1):
        for event in engine.step():
            if isinstance(event, Finished) and event.handle == own:
                for each in others:
                    engine.cancel(each)
                return number, event.answer.token_ids
    raise AssertionError


@pytest.mark.parametrize("delayed", [True, False])
@pytest.mark.parametrize("rule", ["score 0.5", "risk 0.5 audit 0.3", "every 3 audit 1", "score 0"])
def test_a_patient_request_costs_others_no_step(kin: Pair, rule: str, delayed: bool) -> None:
    engine = Engine(kin, 4, MAX_NEW_TOKENS, delayed)
    alone = steps(engine, Rule.parse(rule))
    waiting = steps(engine, Rule.parse(rule), patient(engine), patient(engine, 2))
    if delayed:
        assert waiting == alone
    assert waiting[1] == alone[1]


def test_a_patient_request_alone_is_answered_as_any(kin: Pair) -> None:
    engine = Engine(kin, 2, MAX_NEW_TOKENS, delayed=True)
    [expected] = engine.decode(make_requests(4)[:1], LLM_ALONE)
    ticket = patient(engine)
    [answer] = engine.decode([ticket.request], ticket.policy)
    assert answer == expected


async def overtaken(engine: Engine) -> list[Answer | Broken]:
    worker, order = Worker(), list[Answer | Broken]()
    first, second = patient(engine), Ticket(engine, make_requests(4)[1], LLM_ALONE)

    async def answered(ticket: Ticket) -> None:
        message = await ticket.messages.get()
        assert not isinstance(message, tuple) or isinstance(message, Broken)
        order.append(message)

    try:
        worker.submit(first)
        while not worker._handles:
            await asyncio.sleep(0)
        worker.submit(second)
        assert worker.clients == 1
        await asyncio.gather(answered(first), answered(second))
    finally:
        worker.close()
    return order


def test_a_client_gets_the_slot_of_a_patient_request(kin: Pair) -> None:
    engine = Engine(kin, 1, MAX_NEW_TOKENS)
    expected = {answer.key: answer for answer in engine.decode(make_requests(4)[:2], LLM_ALONE)}
    keys = [request.key for request in make_requests(4)[:2]]
    assert asyncio.run(overtaken(engine)) == [expected[keys[1]], expected[keys[0]]]
