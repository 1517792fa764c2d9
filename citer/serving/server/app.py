"""The routes: OpenAI's chat and text completions, the model, health and metrics."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from citer.errors import InputError
from citer.serving.server.errors import ApiError, bad_request
from citer.serving.server.fields import Asked, Chat, Completion, read
from citer.serving.server.guard import has_key, one_length, own_address
from citer.serving.server.http import Measured, read_body, respond
from citer.serving.server.service import Service


def make_app(service: Service, keys: Sequence[str]) -> FastAPI:
    """Return the application. Without `keys`, everybody may ask who is no page of another site."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with service:
            yield

    checks = [one_length] if keys else [one_length, own_address(service.settings.host)]
    guards = [Depends(check) for check in checks]
    app = FastAPI(
        lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None, dependencies=guards
    )
    app.include_router(_openai(service), prefix="/v1", dependencies=[Depends(has_key(keys))])
    app.include_router(_operations(service))
    app.add_exception_handler(ApiError, _refusal)
    app.add_exception_handler(InputError, _refusal)
    for status in (404, 405):
        app.add_exception_handler(status, partial(_no_route, HTTPStatus(status)))
    app.add_middleware(Measured, metrics=service.metrics)
    return app


def _openai(service: Service) -> APIRouter:
    routes = APIRouter()

    async def answer(request: Request, kind: type[Asked]) -> Response:
        service.check_open()
        asked = read(kind, await read_body(request, service.release.deployment.pair.context))
        return await respond(service, request, service.call(asked), asked)

    @routes.post("/chat/completions")
    async def chat(request: Request) -> Response:
        return await answer(request, Chat)

    @routes.post("/completions")
    async def completions(request: Request) -> Response:
        return await answer(request, Completion)

    @routes.get("/models")
    async def models() -> dict[str, Any]:
        return {"object": "list", "data": [_model(service)]}

    return routes


def _operations(service: Service) -> APIRouter:
    routes = APIRouter()

    @routes.get("/health")
    async def health() -> Response:
        trouble = service.trouble
        return JSONResponse({"status": trouble or "ok"}, 503 if trouble else 200)

    @routes.get("/metrics")
    async def metrics() -> Response:
        return Response(generate_latest(service.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return routes


def _model(service: Service) -> dict[str, Any]:
    version, deployment, _ = service.release
    return {
        "id": service.settings.name,
        "object": "model",
        "created": 0,
        "owned_by": "citer",
        "version": version,
        "rule": str(deployment.rule),
        "tasks": deployment.tasks,
        "max_model_len": deployment.pair.context,
    }


async def _refusal(_: Request, error: Exception) -> Response:
    if isinstance(error, InputError):
        error = bad_request(str(error))
    assert isinstance(error, ApiError)
    return JSONResponse(error.body, error.status, error.headers)


async def _no_route(status: HTTPStatus, request: Request, _: Exception) -> Response:
    asked = f"{request.method} {request.url.path}"
    return await _refusal(request, bad_request(f"{asked}: {status.phrase}", status))
