"""Connections that may be slow on purpose: uvicorn has no limit for the arrival of a request."""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol


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
