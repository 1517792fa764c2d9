"""The worker of `citer serve` when the server of its LLM does not answer."""

import asyncio
from dataclasses import replace

from citer.decoding.answer import Answer
from citer.decoding.engine import Engine
from citer.decoding.policy import LLM_ALONE
from citer.models.pair import Pair
from citer.models.served import ServedModel, Server
from citer.serving.server.worker import Broken, Message, Ticket, Worker
from tests.completions import Completions, serving
from tests.decoding.test_engine import MAX_NEW_TOKENS, make_requests


async def asked(worker: Worker, engine: Engine) -> Message:
    ticket = Ticket(engine, make_requests(1)[0], LLM_ALONE)
    worker.submit(ticket)
    return await ticket.messages.get()


async def drill(engine: Engine, completions: Completions) -> list[Message]:
    worker = Worker()
    try:
        messages = [await asked(worker, engine)]
        calls = len(completions.asked)
        completions.dies_after = calls + 3  # within the answer
        messages.append(await asked(worker, engine))
        completions.dies_after = None
        completions.twist = lambda answer: b"<html>"  # a proxy's page
        messages.append(await asked(worker, engine))
        completions.twist = lambda answer: answer
        messages.append(await asked(worker, engine))
        assert worker.failure is None
        assert not worker.open
    finally:
        worker.close()
    return messages


def test_requests_in_flight_are_broken_and_the_next_ones_answered(kin: Pair) -> None:
    pair = replace(kin, eos_ids=kin.eos_ids[:2])
    with serving(Completions(pair.llm, pair.tokenizer)) as completions:
        llm = ServedModel(Server(completions.url, ()), "llm", pair.llm.card)
        engine = Engine(replace(pair, llm=llm), 2, MAX_NEW_TOKENS)
        first, lost, garbled, again = asyncio.run(drill(engine, completions))
    assert isinstance(lost, Broken)
    assert lost.reason.startswith(f"{completions.url}: no answer (")
    assert isinstance(garbled, Broken)
    assert "expected an answer of vLLM" in garbled.reason
    assert isinstance(first, Answer)
    assert isinstance(again, Answer)
    assert again == first
    assert len(first.token_ids) > 3
