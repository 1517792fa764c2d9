"""Runs the engines. Requests come and go while others are being decoded."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple

from citer.decoding.answer import Answer, Request, Written
from citer.decoding.engine import Engine, Finished
from citer.decoding.policy import Policy
from citer.decoding.sequence import Handle
from citer.errors import InputError
from citer.executors.memory import advice, ran_out

FULL = "memory ran out; "
STOPPED = "the engine has stopped, and so does the server"


class Broken(NamedTuple):
    """The engine has failed, or the server that runs its LLM."""

    reason: str


Message = tuple[Written, ...] | Answer | Broken  # an answer or `Broken` is a ticket's last one


@dataclass(eq=False)
class Ticket:
    """A request on its way through an engine."""

    engine: Engine
    request: Request
    policy: Policy
    streams: bool = False  # whether `messages` gets the settled tokens, too
    messages: asyncio.Queue[Message] = field(default_factory=asyncio.Queue)


class Worker:
    """Runs each engine that has requests one step at a time, in turn, in a thread.

    Between two steps, an engine gets its new requests and drops those of clients that left. A
    patient one has a slot only while no client needs it, and may begin again. `open` are the
    tickets that are not answered, in the order of their arrival. `failure` is the reason why the
    engines stopped, or None; `stopped` is called then.
    """

    def __init__(self, stopped: Callable[[], object] = lambda: None) -> None:
        self._stopped = stopped
        self.open: dict[Ticket, None] = {}
        self.failure: str | None = None
        self._handles: dict[Ticket, Handle] = {}  # of the requests that an engine has
        self._wakes = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "engine")
        self._running = asyncio.create_task(self._run())

    @property
    def clients(self) -> int:
        """The number of open tickets that are not patient."""
        return sum(not ticket.request.patient for ticket in self.open)

    def submit(self, ticket: Ticket) -> None:
        """Queue a request that has passed `Engine.check`."""
        self.open[ticket] = None
        self._wakes.set()

    def cancel(self, ticket: Ticket) -> None:
        """Drop a request before the next step, unless it is answered."""
        self.open.pop(ticket, None)

    def close(self) -> None:
        """End the thread after its current step. Open tickets get no answer."""
        self._running.cancel()
        self._thread.shutdown()

    async def _run(self) -> None:
        try:
            while True:
                while self.open or self._handles:
                    await self._round()
                self._wakes.clear()
                await self._wakes.wait()
        except Exception as error:
            logging.getLogger(__name__).exception("the engine failed")
            self.failure = f"{STOPPED}: {type(error).__name__}: {error}"
            for ticket in [*self.open]:
                self._hand_out(ticket, Broken(self.failure))
            self._stopped()

    async def _round(self) -> None:
        for engine in {ticket.engine: None for ticket in (*self.open, *self._handles)}:
            if tickets := self._updated(engine):
                await self._step(engine, tickets)

    def _updated(self, engine: Engine) -> Mapping[Handle, Ticket]:
        """Tell an engine which tickets are open. Return them."""
        for ticket in [each for each in self._handles if each.engine is engine]:
            if ticket not in self.open or self._waits(ticket):
                engine.cancel(self._handles.pop(ticket))
        for ticket in [each for each in self.open if each.engine is engine]:
            if ticket not in self._handles and not self._waits(ticket):
                self._handles[ticket] = engine.submit(ticket.request, ticket.policy)
        return {handle: each for each, handle in self._handles.items() if each.engine is engine}

    def _waits(self, ticket: Ticket) -> bool:
        """Whether clients need the slot of a patient ticket."""
        return ticket.request.patient and self.clients >= ticket.engine.slots

    async def _step(self, engine: Engine, tickets: Mapping[Handle, Ticket]) -> None:
        try:
            events = await asyncio.get_running_loop().run_in_executor(self._thread, engine.step)
        except Exception as error:
            if not isinstance(error, InputError) and not ran_out(error):
                raise
            # The LLM's server is lost, or a prompt is too long for the memory. Others may get on.
            logging.getLogger(__name__).error("%s", error)
            reason = str(error) if isinstance(error, InputError) else f"{FULL}{advice('serve')}"
            for ticket in tickets.values():
                self._hand_out(ticket, Broken(reason))
            return
        for event in events:
            ticket = tickets[event.handle]
            if isinstance(event, Finished):
                del self._handles[ticket]
                self._hand_out(ticket, event.answer)
            elif ticket.streams:
                self._hand_out(ticket, event.written)

    def _hand_out(self, ticket: Ticket, message: Message) -> None:
        ticket.messages.put_nowait(message)
        if isinstance(message, Answer | Broken):
            self.open.pop(ticket, None)
