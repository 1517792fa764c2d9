"""The server without HTTP: admits requests, gives them to the worker, and changes the release."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

from citer.config.params import SamplingParams
from citer.serving.deployment import Observer, Reply
from citer.serving.server.calls import Call, make_call
from citer.serving.server.errors import overloaded, unavailable
from citer.serving.server.fields import Asked
from citer.serving.server.metrics import Metrics
from citer.serving.server.releases import Release, Releases
from citer.serving.server.worker import Broken, Done, Worker


class Settings(NamedTuple):
    """Settings of the server.

    name: of the model, as clients call it
    queue: how many requests may wait for a slot
    poll: seconds between two looks at the source of the router
    sampling: of requests that do not say how; None is greedy
    host: on which the server listens, as the user has named it
    """

    name: str
    queue: int
    poll: float
    sampling: SamplingParams | None = None
    host: str = "127.0.0.1"


class Service:
    """Answers calls with the newest release. Enter it in the event loop.

    A call keeps the release with which it was made. `draining` refuses new calls.
    """

    def __init__(
        self,
        settings: Settings,
        releases: Releases,
        release: Release,
        metrics: Metrics,
    ) -> None:
        self.settings = settings
        self.release = release
        self.metrics = metrics
        self.draining = False
        self._releases = releases
        metrics.watch_queue(lambda: max(0, self.unanswered - self._slots), self._running)

    async def __aenter__(self) -> "Service":
        self.worker = Worker()
        self._polling = asyncio.create_task(self._poll())
        self._observing = ThreadPoolExecutor(1, "observers")
        self._deploy(self.release)
        return self

    async def __aexit__(self, *_: object) -> None:
        """End all threads. Observers see all replies first."""
        self._polling.cancel()
        self.worker.close()
        self._observing.shutdown()

    @property
    def trouble(self) -> str | None:
        """The reason why no new call is taken, or None."""
        if self.worker.failure:
            return self.worker.failure
        return "the server is stopping" if self.draining else None

    @property
    def unanswered(self) -> int:
        return len(self.worker.open)

    @property
    def _slots(self) -> int:
        return self.release.deployment.slots

    def _running(self) -> int:
        return min(self.unanswered, self._slots)

    def call(self, asked: Asked) -> Call:
        """Check a request. Raises InputError or ApiError."""
        self.check_open()
        return make_call(asked, self.release, self.settings.name, self.settings.sampling)

    def check_open(self) -> None:
        """Raise ApiError if no call is taken."""
        if self.trouble:
            raise unavailable(self.trouble)
        if (waiting := self.unanswered - self._slots) >= self.settings.queue:
            raise overloaded(waiting)

    async def messages(self, call: Call) -> AsyncGenerator[tuple[int, ...] | Done]:
        """Yield the settled tokens of a streaming call, then `Done`.

        Leaving the iterator early frees its slot before the engine's next step. Raises ApiError if
        the engine fails.
        """
        with self._admitted(call):
            while True:
                message = await call.ticket.messages.get()
                if isinstance(message, Broken):
                    raise unavailable(message.reason)
                if isinstance(message, Done):
                    self._answered(call, message)
                yield message
                if isinstance(message, Done):
                    return

    async def answer(self, call: Call) -> Done:
        """Return the answer of a call that does not stream. Raises ApiError."""
        [done] = [message async for message in self.messages(call)]
        assert isinstance(done, Done)
        return done

    @contextmanager
    def _admitted(self, call: Call) -> Iterator[None]:
        self.check_open()
        self.worker.submit(call.ticket)
        try:
            yield
        finally:
            if call.ticket in self.worker.open:
                self.metrics.left.inc()
                self.worker.cancel(call.ticket)

    def _answered(self, call: Call, done: Done) -> None:
        self.metrics.answered(done.answer)
        if call.observers and (reply := call.reply(done)):
            self._observing.submit(_observe, call.observers, reply)

    def _deploy(self, release: Release) -> None:
        self.release = release
        self.metrics.deployed(release.version, release.deployment.rule)

    async def _poll(self) -> None:
        """Take up each new version. One that cannot be loaded changes nothing."""
        while True:
            await asyncio.sleep(self.settings.poll)
            try:
                newest = await asyncio.to_thread(self._releases.newest, self.release)
            except Exception as error:
                said = f"the newest router cannot be used, {self.release.version} stays: {error}"
                logging.getLogger(__name__).warning(said)
                continue
            if newest is not self.release:
                self._deploy(newest)


def _observe(observers: Sequence[Observer], reply: Reply) -> None:
    for observer in observers:
        try:
            observer.answered(reply)
        except Exception:
            logging.getLogger(__name__).exception("an observer failed")
