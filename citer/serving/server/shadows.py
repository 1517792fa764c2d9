"""Shadow answers: drawn requests are answered again while slots are free, after their replies."""

import asyncio
from collections.abc import Callable, Mapping

from citer.decoding.answer import Answer
from citer.rule import Rule
from citer.serving.server.worker import Ticket, Worker

WAITING = 64
Answers = Mapping[Rule, Answer] | None  # by each rule; None for a request that was dropped


class Shadows:
    """Has one ticket at a time answered by a worker. At most `WAITING` requests wait."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._alone = asyncio.Lock()
        self._waiting = set[asyncio.Task[Answers]]()

    def add(
        self,
        tickets: Mapping[Rule, Ticket],
        wanted: Callable[[], bool],
        done: Callable[[Answers], object],
    ) -> None:
        """Queue a request with a patient ticket for each rule, or drop it if too many wait.

        `wanted` says whether its answers are still of use. `done` is called once.
        """
        if len(self._waiting) == WAITING:
            done(None)
            return
        task = asyncio.create_task(self._answers(tickets, wanted))
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)
        task.add_done_callback(lambda ended: done(None if ended.cancelled() else ended.result()))

    async def close(self) -> None:
        """Drop all requests."""
        for task in self._waiting:
            task.cancel()
        await asyncio.gather(*self._waiting, return_exceptions=True)

    async def _answers(self, tickets: Mapping[Rule, Ticket], wanted: Callable[[], bool]) -> Answers:
        found = {}
        async with self._alone:
            for rule, ticket in tickets.items():
                if not wanted():
                    return None
                self._worker.submit(ticket)
                message = await ticket.messages.get()
                if not isinstance(message, Answer):  # the LLM's server or the engine has failed
                    return None
                found[rule] = message
        return found
