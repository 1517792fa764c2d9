"""Run the server in this process until a signal stops it.

Connections may be slow on purpose: uvicorn has no limit for the arrival of a request.
"""

import asyncio
import gc
import os
import socket
from collections.abc import Sequence
from functools import partial
from types import FrameType
from typing import Any

import h11
import torch
import uvicorn
from prometheus_client import CollectorRegistry
from uvicorn.protocols.http.h11_impl import H11Protocol

from citer.config.params import Params
from citer.errors import InputError
from citer.models.sampling import Sampler
from citer.progress import say
from citer.rule import Rule
from citer.serving.log import Traffic
from citer.serving.server.app import make_app
from citer.serving.server.metrics import Metrics
from citer.serving.server.releases import Alarmed, Observers, Releases, Source
from citer.serving.server.service import Service, Settings

PATIENCE = 60.0  # seconds in which a request must arrive


class Connection(H11Protocol):
    """Closes itself if a request has not arrived in full within `patience` seconds.

    The time begins with the connection, and again after each reply.
    """

    def __init__(self, patience: float, **given: Any) -> None:
        super().__init__(**given)
        self._patience = patience
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._watch()

    def handle_events(self) -> None:
        super().handle_events()
        self._watch()

    def _watch(self) -> None:
        arrives = self.conn.their_state in (h11.IDLE, h11.SEND_BODY)
        arrives &= not self.transport.is_closing()  # else the timer would keep this object
        if arrives and not self._deadline:
            self._deadline = self.loop.call_later(self._patience, self.transport.close)
        elif self._deadline and not arrives:
            self._deadline.cancel()
            self._deadline = None


class Draining(uvicorn.Server):
    """Stops when every running request is answered. A second signal does not wait."""

    def __init__(self, service: Service, keys: Sequence[str], patience: float = PATIENCE) -> None:
        app, http = make_app(service, keys), partial(Connection, patience)
        given: Any = {"http": http, "log_level": "warning", "access_log": False}
        super().__init__(uvicorn.Config(app, **given))
        self.service = service

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        # The base class would raise the signal again at the end, for another exit status.
        self.should_exit = self.force_exit = self.service.draining
        self.service.draining = True

    async def on_tick(self, counter: int) -> bool:
        self.should_exit |= self.service.draining and not self.service.unanswered
        return await super().on_tick(counter)


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that is bound. Raises InputError if it cannot be."""
    try:
        return socket.create_server((host, port), backlog=2048)
    except (OSError, OverflowError) as error:
        raise InputError(f"--host {host} --port {port}: {error}") from None


def accepted_keys() -> list[str]:
    """Return the keys in CITER_API_KEYS, none if it is not set.

    Raises InputError if it is set but has none: the server would be open by mistake.
    """
    given = os.environ.get("CITER_API_KEYS")
    keys = [key.strip() for key in (given or "").split(",") if key.strip()]
    if given is not None and not keys:
        raise InputError("CITER_API_KEYS: no key; expected KEY,…, or no such variable")
    return keys


def serve(
    settings: Settings,
    params: Params,
    rule: Rule | None,
    source: Source,
    listener: socket.socket,
    traffic: Traffic | None,
    alarmed: Alarmed,
) -> None:
    """Load the newest router of `source` with its pair, and answer until SIGTERM or SIGINT.

    `rule` replaces the router's own. `traffic` logs the answers. A low agreement calls `alarmed`.
    The environment variable CITER_API_KEYS has the accepted keys, separated by commas.
    Raises InputError.
    """
    keys, registry = accepted_keys(), CollectorRegistry()
    observe = Observers(registry, Sampler(settings.sampling), traffic, alarmed)
    releases = Releases(source, params, rule, observe)
    gc.collect()
    gc.freeze()  # imported modules are searched no more; a release must be, as it may be replaced
    # The service alone holds the release, so that a promotion frees it.
    service = Service(settings, releases, releases.newest(), Metrics(registry))
    if service.release.deployment.pair.is_small:
        torch.set_num_threads(1)  # more would slow such short forwards down
    host, port = listener.getsockname()[:2]
    say(f"{settings.name} ({service.release.version}) answers at http://{host}:{port}/v1")
    Draining(service, keys).run(sockets=[listener])
