"""The thread that owns the engines. Requests come and go while others are being decoded."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import NamedTuple

from citer.decoding.answer import Answer, Request
from citer.decoding.engine import Engine, Event, Finished
from citer.decoding.policy import Policy
from citer.decoding.sequence import Handle
from citer.errors import InputError

STOPPED = "the engine has stopped, the server must be started again"


class Broken(NamedTuple):
    """The engine has failed, or the server that runs its LLM."""

    reason: str


Message = tuple[int, ...] | Answer | Broken


@dataclass(eq=False)
class Ticket:
    """A request on its way through an engine.

    `messages` gets the settled tokens if the ticket `streams`, then the answer; or at any time, as
    the last one, `Broken`.
    """

    engine: Engine
    request: Request
    policy: Policy
    streams: bool = False
    messages: asyncio.Queue[Message] = field(default_factory=asyncio.Queue)


class Worker:
    """Runs each engine that has requests one step at a time, in turn.

    All methods must be called by the thread of the event loop. `open` are the tickets that are not
    answered. `failure` is the reason why the engines stopped, or None.
    """

    def __init__(self) -> None:
        self.open: set[Ticket] = set()
        self.failure: str | None = None
        self._loop = asyncio.get_running_loop()
        self._orders: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._tickets: dict[Engine, dict[Handle, Ticket]] = {}  # of engines that have any
        self._ends = False
        self._thread = Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    def submit(self, ticket: Ticket) -> None:
        """Queue a request that has passed `Engine.check`."""
        self.open.add(ticket)
        self._orders.put(partial(self._submit, ticket))

    def cancel(self, ticket: Ticket) -> None:
        """Drop a request before the next step, unless it is answered."""
        if ticket in self.open:
            self.open.remove(ticket)
            self._orders.put(partial(self._cancel, ticket))

    def close(self) -> None:
        """End the thread after its current step. Open tickets get no answer."""
        self._orders.put(partial(setattr, self, "_ends", True))
        self._thread.join()

    def _hand_out(self, messages: Sequence[tuple[Ticket, Message]]) -> None:
        for ticket, message in messages:
            ticket.messages.put_nowait(message)
            if isinstance(message, Answer | Broken):
                self.open.discard(ticket)

    def _fail(self, reason: str) -> None:
        self.failure = reason
        self._hand_out([(ticket, Broken(reason)) for ticket in self.open])

    # The methods below run in the engines' thread.

    def _run(self) -> None:
        try:
            while not self._ends:
                # Carry out all orders. Without a request, wait for one.
                while not (self._tickets or self._ends) or not self._orders.empty():
                    self._orders.get()()
                for engine in [*self._tickets]:
                    self._step(engine)
        except Exception as error:
            logging.getLogger(__name__).exception("the engine failed")
            reason = f"{STOPPED}: {type(error).__name__}: {error}"
            self._loop.call_soon_threadsafe(self._fail, reason)

    def _step(self, engine: Engine) -> None:
        try:
            events = engine.step()
        except InputError as error:  # of the server that runs the LLM
            logging.getLogger(__name__).error("%s", error)
            self._give_up(engine, str(error))
        else:
            self._deliver(engine, events)

    def _give_up(self, engine: Engine, reason: str) -> None:
        """Leave the engine's requests unanswered. It goes on with the next ones."""
        tickets = self._tickets.pop(engine)
        for handle in tickets:
            engine.cancel(handle)
        messages = [(ticket, Broken(reason)) for ticket in tickets.values()]
        self._loop.call_soon_threadsafe(self._hand_out, messages)

    def _submit(self, ticket: Ticket) -> None:
        handle = ticket.engine.submit(ticket.request, ticket.policy)
        self._tickets.setdefault(ticket.engine, {})[handle] = ticket

    def _cancel(self, ticket: Ticket) -> None:
        for handle, other in self._tickets.get(ticket.engine, {}).items():
            if other is ticket:
                ticket.engine.cancel(handle)
                self._forget(ticket.engine, handle)
                return

    def _forget(self, engine: Engine, handle: Handle) -> None:
        """Drop a ticket, and with its last one the engine: a newer deployment may replace it."""
        del self._tickets[engine][handle]
        if not self._tickets[engine]:
            del self._tickets[engine]

    def _deliver(self, engine: Engine, events: Sequence[Event]) -> None:
        messages: list[tuple[Ticket, Message]] = []
        for event in events:
            ticket = self._tickets[engine][event.handle]
            if isinstance(event, Finished):
                messages.append((ticket, event.answer))
                self._forget(engine, event.handle)
            elif ticket.streams:
                messages.append((ticket, event.token_ids))
        if messages:
            self._loop.call_soon_threadsafe(self._hand_out, messages)
