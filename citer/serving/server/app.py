"""HTTP: OpenAI's chat and text completions, the model, health and metrics; clients that leave."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, TypeVar

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from citer.decoding.answer import Answer
from citer.errors import InputError, shown
from citer.models.room import CHARACTERS, TooLongError
from citer.serving.server.fields import Body, Chat, Completion, read
from citer.serving.server.metrics import Measured
from citer.serving.server.page import make_page
from citer.serving.server.refusals import CLOSE, ApiError, from_here, has_key, one_length
from citer.serving.server.replies import END, TextStream, event
from citer.serving.server.service import Call, Service

T = TypeVar("T")
# The longest body: BYTES for each token of the context (a character may have four), and SPARE.
BYTES, SPARE = 4 * CHARACTERS, 2**16
JSON = "application/json"
PATIENCE = 60.0  # seconds in which a body must arrive
UNBUFFERED = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}  # by a proxy such as nginx
GONE = 499  # the status that nginx logs for a client that has left; nobody reads it


def make_app(service: Service, keys: Sequence[str]) -> FastAPI:
    """Return the application. Without `keys`, everybody may ask who is no page of another site."""
    guards = [Depends(check) for check in ([one_length] if keys else [one_length, from_here])]
    app = FastAPI(
        lifespan=lambda _: service,
        openapi_url=None,
        dependencies=guards,
        redirect_slashes=False,  # a redirect would pass no guard
    )
    app.include_router(_openai(service), prefix="/v1", dependencies=[Depends(has_key(keys))])
    page = make_page([] if keys else service.settings.questions)
    app.include_router(_operations(service, page))
    for refused in (ApiError, InputError, HTTPException):
        app.add_exception_handler(refused, _refusal)
    app.add_middleware(Measured, metrics=service.metrics)
    return app


def _openai(service: Service) -> APIRouter:
    routes = APIRouter()
    for path, kind in (("/chat/completions", Chat), ("/completions", Completion)):
        routes.add_api_route(path, partial(_answer, service, kind), methods=["POST"])

    @routes.get("/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [_model(service)]}

    @routes.get("/models/{name}")
    async def model(name: str) -> dict[str, Any]:
        service.check_name(name)
        return _model(service)

    return routes


def _operations(service: Service, page: Response) -> APIRouter:
    routes = APIRouter()

    @routes.get("/")
    async def shown_page() -> Response:
        return page

    @routes.get("/health")
    async def health() -> Response:
        trouble = service.worker.failure
        return JSONResponse({"status": trouble or "ok"}, 503 if trouble else 200)

    @routes.get("/metrics")
    async def metrics() -> Response:
        service.show()
        return Response(generate_latest(service.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return routes


def _model(service: Service) -> dict[str, Any]:
    release = service.release
    return {
        "id": service.settings.name,
        "object": "model",
        "created": 0,
        "owned_by": "citer",
        "version": release.version,
        "rule": str(release.rule),
        "promise": release.promise,
        "tasks": release.deployment.tasks,
        "max_model_len": release.deployment.pair.context,
    }


async def _refusal(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):  # no such route
        asked = f"{request.method} {request.url.path}"
        error = ApiError(error.status_code, f"{asked}: {error.detail}")
    elif not isinstance(error, ApiError):
        code = "context_length_exceeded" if isinstance(error, TooLongError) else None
        error = ApiError(400, str(error), code=code)
    return JSONResponse(error.body, error.status, error.headers)


async def read_body(request: Request, context: int) -> bytes:
    """Return the body.

    Raises ApiError if it is not declared as JSON (a page may send any other type to any site), if
    it is too long for a prompt of `context` tokens, if it takes too long, or if the client leaves.
    """
    kind = request.headers.get("content-type", "")
    if kind.partition(";")[0].strip().lower() != JSON:
        raise ApiError(415, f"Content-Type: {shown(kind)}; expected {JSON}")
    body, limit = bytearray(), BYTES * context + SPARE
    try:
        async with asyncio.timeout(PATIENCE):
            async for part in request.stream():
                body += part
                if len(body) > limit:
                    raise ApiError(413, f"body: expected at most {limit:,} bytes", headers=CLOSE)
    except TimeoutError:
        raise ApiError(408, f"body: not here after {PATIENCE:g} s", headers=CLOSE) from None
    except ClientDisconnect:
        raise ApiError(GONE, "body: the client left before its end") from None
    return bytes(body)


async def _answer(service: Service, kind: type[Body], request: Request) -> Response:
    """Answer a request, or drop it if the client leaves. Raises ApiError, InputError."""
    service.check_open()
    asked = read(kind, await read_body(request, service.release.deployment.pair.context))
    call = service.call(asked)
    if not asked.stream:
        answer = await _unless_gone(request, service.answer(call))
        return JSONResponse(call.form.reply(answer, call.text(answer)))
    events = _events(service, call, asked)
    # Wait for the first event: until then, a failure has a status of its own.
    first = call.form.opening + await _unless_gone(request, anext(events))
    return StreamingResponse(_joined(first, events), 200, UNBUFFERED, "text/event-stream")


async def _events(service: Service, call: Call, asked: Body) -> AsyncGenerator[bytes]:
    """Yield the events of a streamed answer. Raises ApiError."""
    stream, form = TextStream(call.engine.pair, call.request.stop), call.form
    async with aclosing(service.messages(call)) as messages:
        async for message in messages:
            if isinstance(message, Answer):
                yield form.piece(stream.rest(call.text(message)), message)
                if asked.stream_options and asked.stream_options.include_usage:
                    yield form.usage_event(message)
                yield END
            elif asked.citer.written:
                yield form.written_piece(stream.written(message))
            elif piece := stream.add([token.token_id for token in message]):
                yield form.piece(piece)


async def _joined(first: bytes, events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield all events. A failure becomes the last one, without END: the answer is not whole."""
    yield first
    try:
        async for each in events:
            yield each
    except ApiError as refused:
        yield event(refused.body)


async def _unless_gone(request: Request, work: Awaitable[T]) -> T:
    """Return the result of `work`. Cancels it and raises ApiError once the client has left."""
    task, gone = asyncio.ensure_future(work), asyncio.create_task(_gone(request))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ApiError(GONE, "the client left before its answer")
        return task.result()
    finally:
        gone.cancel()
        task.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
