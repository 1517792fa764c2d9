"""Shadow answers: drawn requests are answered again while slots are free, after their replies."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

from citer.decoding.answer import Answer
from citer.rule import Rule
from citer.serving.server.worker import Ticket, Worker

WAITING = 64


class Shadowed(NamedTuple):
    """A request to answer by each rule. `done` is called once, with None if it was dropped."""

    tickets: Mapping[Rule, Ticket]  # patient ones
    wanted: Callable[[], bool]  # whether their answers are still of use
    done: Callable[[Mapping[Rule, Answer] | None], object]


class Shadows:
    """Has one ticket at a time answered by a worker. At most `WAITING` requests wait."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._waiting = asyncio.Queue[Shadowed](WAITING)
        self._running = asyncio.create_task(self._run())

    def add(self, shadowed: Shadowed) -> None:
        """Queue a request, or drop it if too many wait."""
        try:
            self._waiting.put_nowait(shadowed)
        except asyncio.QueueFull:
            shadowed.done(None)

    async def close(self) -> None:
        """Drop all requests."""
        self._running.cancel()
        with suppress(asyncio.CancelledError):
            await self._running
        while not self._waiting.empty():
            self._waiting.get_nowait().done(None)

    async def _run(self) -> None:
        while True:
            shadowed, answers = await self._waiting.get(), None
            try:
                answers = await self._answers(shadowed)
            finally:
                shadowed.done(answers)

    async def _answers(self, shadowed: Shadowed) -> Mapping[Rule, Answer] | None:
        found = {}
        for rule, ticket in shadowed.tickets.items():
            if not shadowed.wanted():
                return None
            self._worker.submit(ticket)
            message = await ticket.messages.get()
            if not isinstance(message, Answer):  # the LLM's server or the engine has failed
                return None
            found[rule] = message
        return found
