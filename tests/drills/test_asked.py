"""Any request to `citer serve`, and any row for the served model, is answered or refused.

A refusal is one line. The server answers the next question as before.
"""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from citer.decoding.engine import Engine
from citer.errors import LONGEST
from citer.models.pair import Pair
from citer.models.sampling import ALL_GREEDY
from citer.serving.deployment import REPLY_FIELDS
from citer.serving.server.app import make_app
from citer.serving.server.metrics import Metrics
from citer.serving.server.releases import Release
from citer.serving.server.service import Service, Settings
from flows.tracking.serving import RoutedModel
from tests.drills.asked import CHAT, CHATS, COMMON, JSON, ROWS, Asking, asking, rows
from tests.drills.scale import SCALE, SEED, Record
from tests.server.running import Shelf, deployed

pytestmark = pytest.mark.slow

REQUESTS = 200 * SCALE
REFUSED = {400, 401, 403, 404, 405, 413, 415}
GOOD = Asking("POST", CHAT, JSON, json.dumps(COMMON | CHATS[0]).encode())
OFTEN = 50  # requests between two good ones


def test_every_request_is_answered_or_refused_in_one_line(
    kin: Pair, record_property: Record
) -> None:
    tally, failures = asyncio.run(asked(kin))
    for (path, status), count in sorted(tally.items()):
        print(f"{count:5} {path} {status}")
    assert not failures, f"{len(failures)} of {REQUESTS}, seed {SEED}\n" + "\n\n".join(failures)
    record_property("damaged requests to citer serve", REQUESTS)


async def asked(pair: Pair) -> tuple[Counter[tuple[str, int]], list[str]]:
    """Send all requests. Return how often each status came, and what is wrong."""
    tally, failures = Counter[tuple[str, int]](), list[str]()
    release = Release("tiny/1", deployed(pair), ())
    service = Service(Settings("tiny", 8, poll=60), Shelf(), release, Metrics(CollectorRegistry()))  # type: ignore[arg-type]
    transport = httpx.ASGITransport(make_app(service, []))
    async with (
        service,
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
    ):
        before = (await send(client, GOOD)).json()["choices"]
        for case in range(REQUESTS):
            request = asking(Random(f"{SEED} {case}"))
            reply = await send(client, request)
            tally[request.path, reply.status_code] += 1
            if wrong := "; ".join(complaints(request, reply)):
                failures.append(f"case {case}: {request}\n{wrong}\n{reply.text[:500]}")
            if case % OFTEN == 0:
                assert (await send(client, GOOD)).json()["choices"] == before
        assert (await send(client, GOOD)).json()["choices"] == before
        assert (service.worker.clients, service.worker.failure) == (0, None)
    return tally, failures


async def send(client: httpx.AsyncClient, request: Asking) -> httpx.Response:
    """Send a request. An exception that the application does not answer is raised."""
    return await client.request(
        request.method, request.path, content=request.body, headers=request.headers, timeout=60
    )


def complaints(request: Asking, reply: httpx.Response) -> Iterator[str]:
    if reply.status_code not in REFUSED | {200}:
        yield f"status {reply.status_code}"
    elif reply.status_code == 200:
        if reply.headers["content-type"].startswith("text/event-stream"):
            yield from () if reply.text.endswith("data: [DONE]\n\n") else ("no end of the stream",)
        elif request.method == "POST" and not reply.json()["choices"]:
            yield "no choices"
    elif request.method != "HEAD":
        yield from refusal(reply.json()["error"]["message"])


def refusal(message: str) -> Iterator[str]:
    if not message or len(message.splitlines()) > 1 or len(message) > LONGEST:
        yield "not one line"
    if "Traceback" in message:
        yield "a traceback"


def test_every_row_of_the_served_model_is_answered_or_refused_in_one_line(
    kin: Pair, record_property: Record
) -> None:
    model = RoutedModel()
    engine = Engine(kin, 3, max_new_tokens=4)
    model.deployment, model.sampler = replace(deployed(kin), engine=engine), ALL_GREEDY
    before = answers(model, [ROWS[0]])
    for case in range(REQUESTS):
        given = rows(Random(f"{SEED} {case}"))
        found = answers(model, given)
        assert len(found) == len(given), f"case {case}: {given}"
        for row, answer in zip(given, found, strict=True):
            wrong = "; ".join(row_complaints(answer))
            assert not wrong, f"case {case}, seed {SEED}: {row}\n{answer}\n{wrong}"
    assert answers(model, [ROWS[0]]) == before
    record_property("damaged calls of the served model", REQUESTS)


def answers(model: RoutedModel, given: list[Any]) -> list[dict[str, Any]]:
    return model.predict(None, given).to_dict("records")


def row_complaints(answer: dict[str, Any]) -> Iterator[str]:
    answered = [answer[field] is not None for field in REPLY_FIELDS]
    if answer["error"] is None:
        yield from () if all(answered) else ("neither an answer nor an error",)
    else:
        yield from ("an answer and an error",) if any(answered) else ()
        yield from refusal(answer["error"])
