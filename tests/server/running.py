"""A server of a tiny pair in a thread of the test, and engines that wait for the test."""

import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Any

import openai
import uvicorn
from prometheus_client import CollectorRegistry

from citer.decoding.engine import Engine
from citer.decoding.engine import Event as EngineEvent
from citer.models.pair import Pair
from citer.rule import Rule
from citer.serving.deployment import Deployment, Observer
from citer.serving.log import Traffic
from citer.serving.server.metrics import Metrics
from citer.serving.server.releases import Release
from citer.serving.server.run import listen, make_server
from citer.serving.server.service import Service, Settings
from tests.flows.servers import until
from tests.heads import random_router

RULE = Rule("risk", 0.5, audit=0.3)
MAX_NEW_TOKENS = 24
QUESTIONS = [f"Ann has {n} bags of {2 * n} apples. How many?" for n in range(1, 13)]


class Gated(Engine):
    """An engine that takes a step only while its gate is open, and fails on demand."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.gate, self.waits, self.failure = Event(), Event(), ""
        self.gate.set()
        self.watch: Callable[[], object] = lambda: None  # called before each step

    def step(self) -> list[EngineEvent]:
        if not self.gate.is_set():
            self.waits.set()
            self.gate.wait()
        self.watch()
        if self.failure:
            raise RuntimeError(self.failure)
        return super().step()


def deployed(pair: Pair, slots: int = 3, seed: int = 0, rule: Rule = RULE) -> Deployment:
    router = random_router(pair.slm.hidden_size, seed, dtype=pair.slm.dtype)
    return Deployment(Gated(pair, slots, MAX_NEW_TOKENS, delayed=True), router, rule)


@dataclass
class Shelf:
    """Releases that the test provides."""

    next: Release | None = None
    failure: Exception | None = None
    traffic: Traffic | None = None
    looks: int = field(default=0, init=False)

    def latest(self) -> str:
        self.looks += 1
        if self.failure:
            raise self.failure
        return "models:/tiny/1"

    def made(self, router: str, current: Release) -> Release:
        return self.next or current


@dataclass
class Running:
    service: Service
    server: uvicorn.Server
    thread: Thread
    url: str
    shelf: Shelf

    @property
    def engine(self) -> Gated:
        engine = self.service.release.deployment.engine
        assert isinstance(engine, Gated)
        return engine

    def client(self, key: str = "none") -> openai.OpenAI:
        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0)

    def connected(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", int(self.url.rpartition(":")[2])), 30)

    def metric(self, name: str, **labels: str) -> float | None:
        self.service.show()
        return self.service.metrics.registry.get_sample_value(name, labels)


@contextmanager
def running(
    made: Deployment | Release,
    *,
    queue: int = 64,
    keys: Sequence[str] = (),
    observer: Observer | None = None,
    questions: Sequence[str] = (),
) -> Iterator[Running]:
    """Serve inside the block. Then the server drains."""
    settings, shelf = Settings("tiny", queue, 0.01, None, questions), Shelf()
    first = [Release("tiny/1", made, observer) if isinstance(made, Deployment) else made]
    del made  # the service alone holds it
    service = Service(settings, shelf, first.pop(), Metrics(CollectorRegistry()))  # type: ignore[arg-type]
    server = make_server(service, keys)
    with listen("127.0.0.1", 0) as listener:
        thread = Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        until(lambda: server.started, 30)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        try:
            yield Running(service, server, thread, url, shelf)
        finally:
            vars(service)["release"].deployment.engine.gate.set()  # type: ignore[attr-defined]
            server.handle_exit(15, None)
            thread.join(30)
    assert not thread.is_alive()


def head(method: str, path: str, **headers: str) -> bytes:
    """Return the head of a request with a body of JSON."""
    lines = {"Host": "localhost", "Content-Type": "application/json"} | headers
    fields = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{method} {path} HTTP/1.1\r\n{fields}\r\n".encode()


def asked(question: str, **fields: Any) -> dict[str, Any]:
    """Return the arguments of a chat request."""
    return {"model": "tiny", "messages": [{"role": "user", "content": question}]} | fields


def routing(reply: Any) -> dict[str, Any]:
    return reply.model_extra["citer"]
