"""Bodies, streams and clients that leave."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import aclosing
from typing import Any, TypeVar

from fastapi import Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.requests import ClientDisconnect

from citer.errors import shown
from citer.models.room import CHARACTERS
from citer.serving.server.calls import Call
from citer.serving.server.errors import CLOSE, ApiError, bad_request
from citer.serving.server.fields import Asked
from citer.serving.server.metrics import Metrics
from citer.serving.server.replies import END, event
from citer.serving.server.service import Service
from citer.serving.server.worker import Done

T = TypeVar("T")
Message = MutableMapping[str, Any]  # of ASGI, as are the next ones
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Asgi = Callable[[Message, Receive, Send], Awaitable[None]]
# The longest body: BYTES for each token of the context (a character may have four), and SPARE.
BYTES, SPARE = 4 * CHARACTERS, 2**16
JSON = "application/json"
GONE = 499  # the status that nginx logs for a client that has left; nobody reads it


async def read_body(request: Request, context: int) -> bytes:
    """Return the body.

    Raises ApiError if it is not declared as JSON (a page may send any other type to any site), if
    it is too long for a prompt of `context` tokens, or if the client leaves.
    """
    kind = request.headers.get("content-type", "")
    if kind.partition(";")[0].strip().lower() != JSON:
        raise bad_request(f"Content-Type: {shown(kind)}; expected {JSON}", 415)
    body, limit = bytearray(), BYTES * context + SPARE
    try:
        async for part in request.stream():
            body += part
            if len(body) > limit:
                raise bad_request(f"body: expected at most {limit:,} bytes", 413, headers=CLOSE)
    except ClientDisconnect:
        raise bad_request("body: the client left before its end", GONE) from None
    return bytes(body)


async def respond(service: Service, request: Request, call: Call, asked: Asked) -> Response:
    """Answer a call, or drop it if the client leaves. Raises ApiError."""
    if asked.stream:
        counted = bool(asked.stream_options and asked.stream_options.include_usage)
        events = _events(service, call, counted)
        # Wait for the first event: until then, a failure has a status of its own.
        first = await _unless_gone(request, anext(events))
        if first is None:
            return Response(status_code=GONE)
        first = call.form.opening + first
        return StreamingResponse(_joined(first, events), media_type="text/event-stream")
    done = await _unless_gone(request, service.answer(call))
    if done is None:
        return Response(status_code=GONE)
    return JSONResponse(call.form.reply(call.pair, done, call.text(done)))


async def _events(service: Service, call: Call, counted: bool) -> AsyncGenerator[bytes]:
    """Yield the events of a streamed answer. Raises ApiError."""
    stream, form = call.stream(), call.form
    async with aclosing(service.messages(call)) as messages:
        async for message in messages:
            if isinstance(message, Done):
                yield form.last(message, stream.rest(call.text(message)))
                if counted:
                    yield form.usage_event(message.answer)
                yield END
            elif piece := stream.add(message):
                yield form.piece(piece)


async def _joined(first: bytes, events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield all events. A failure becomes the last one, without END: the answer is not whole."""
    yield first
    try:
        async for each in events:
            yield each
    except ApiError as refused:
        yield event(refused.body)


async def _unless_gone(request: Request, work: Awaitable[T]) -> T | None:
    """Return the result of `work`, or cancel it and return None once the client has left."""
    task, gone = asyncio.ensure_future(work), asyncio.create_task(_gone(request))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        gone.cancel()
        task.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


class Measured:
    """Counts and times the requests of an application."""

    def __init__(self, app: Asgi, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun, status = time.monotonic(), 500  # for an exception, which is answered further out

        async def noted(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self.app(scope, receive, noted)
        finally:
            # Paths that do not exist have no route, and no label of their own.
            path = scope["path"] if "route" in scope or "endpoint" in scope else "other"
            self.metrics.requests.labels(path, status).inc()
            self.metrics.seconds.labels(path).observe(time.monotonic() - begun)
