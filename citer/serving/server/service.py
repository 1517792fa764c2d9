"""The server without HTTP: admits requests, gives them to the worker, and changes the release."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from citer.config.params import SamplingParams
from citer.data.problems import Problem
from citer.data.prompts import token_ids
from citer.decoding.answer import Request
from citer.errors import InputError
from citer.models.pair import Pair
from citer.models.room import check_characters
from citer.models.sampling import stable_hash
from citer.serving.deployment import Observer, Reply
from citer.serving.server.fields import Asked, Chat, Completion
from citer.serving.server.metrics import Metrics
from citer.serving.server.refusals import ApiError
from citer.serving.server.releases import Release, Releases
from citer.serving.server.replies import ChatForm, Form, TextForm
from citer.serving.server.worker import Broken, Done, Ticket, Worker

LONG = "context_length_exceeded"


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


@dataclass(frozen=True, eq=False)
class Call:
    """A request that can be answered, and the form of its reply. `problem` is None if no chat."""

    ticket: Ticket
    form: Form
    problem: Problem | None
    observers: Sequence[Observer]

    @property
    def pair(self) -> Pair:
        return self.ticket.engine.pair

    def text(self, done: Done) -> str:
        return self.pair.text(done.answer.token_ids, self.ticket.request.stop)

    def reply(self, done: Done) -> Reply | None:
        """Return what observers see, or None: they see chats only."""
        if self.problem is None:
            return None
        return Reply(self.problem, done.answer, self.text(done), self.ticket.request.sampling)


def make_call(asked: Asked, release: Release, name: str, default: SamplingParams | None) -> Call:
    """Check a request to the model `name`. `default` says how answers are sampled.

    Raises InputError or ApiError.
    """
    if asked.model != name:
        found = f"model: {asked.model!r}; expected {name!r}"
        raise ApiError(404, found, code="model_not_found")
    if asked.stream and asked.wants_logprobs:
        raise InputError("logprobs: asked with `stream`; expected one of both")
    deployment, rule = release.deployment, asked.rule or release.deployment.rule
    prompt_ids, problem, key = _prompt(asked, release)
    sampling = asked.sampler(default).sampling(key)
    request = Request("prompt", prompt_ids, (), None, sampling, asked.stops, asked.limit)
    policy = deployment.policy(rule)
    new_tokens = request.max_new_tokens or deployment.max_new_tokens
    with _coded(LONG if len(prompt_ids) + new_tokens > deployment.pair.context else None):
        deployment.engine.check(request)
    ticket = Ticket(deployment.engine, request, policy, bool(asked.stream), asked.wants_logprobs)
    form = (ChatForm if problem else TextForm)(name, release.version, rule, len(prompt_ids))
    return Call(ticket, form, problem, release.observers)


@contextmanager
def _coded(code: str | None) -> Iterator[None]:
    """Turn an InputError into an ApiError with a code of OpenAI's."""
    try:
        yield
    except InputError as error:
        raise ApiError(400, str(error), code=code) from None


def _prompt(asked: Asked, release: Release) -> tuple[tuple[int, ...], Problem | None, str]:
    """Return the prompt, the problem of a chat, and a key that only equal prompts share."""
    pair = release.deployment.pair
    if isinstance(asked, Chat):
        problem = asked.problem(release.deployment.tasks)
        _check_length(problem.characters, pair)
        return tuple(pair.prompts.prompt_ids(problem)), problem, problem.problem_id
    assert isinstance(asked, Completion)
    prompt = asked.single_prompt(pair.vocabulary.size)
    if isinstance(prompt, str):
        _check_length(len(prompt), pair)
        prompt = token_ids(prompt, pair.tokenizer, begins=True)
    return tuple(prompt), None, str(stable_hash(str(tuple(prompt))))


def _check_length(characters: int, pair: Pair) -> None:
    """Raise ApiError for a text that cannot fit: to encode it would hold up others."""
    with _coded(LONG):
        check_characters("prompt", characters, pair.context)


class Service:
    """Answers calls with the newest release. Enter it in the event loop.

    A call keeps the release with which it was made. `draining` refuses new calls.
    """

    def __init__(
        self, settings: Settings, releases: Releases, release: Release, metrics: Metrics
    ) -> None:
        self.settings, self.release, self.metrics = settings, release, metrics
        self.draining = False
        self._releases = releases
        metrics.watch_queue(
            lambda: max(0, self.unanswered - self._slots),
            lambda: min(self.unanswered, self._slots),
        )

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

    def call(self, asked: Asked) -> Call:
        """Check a request. Raises InputError or ApiError."""
        self.check_open()
        return make_call(asked, self.release, self.settings.name, self.settings.sampling)

    def check_open(self) -> None:
        """Raise ApiError if no call is taken."""
        if self.trouble:
            raise _unavailable(self.trouble)
        if (waiting := self.unanswered - self._slots) >= self.settings.queue:
            said, later = f"{waiting} requests wait already; try again later", {"Retry-After": "1"}
            raise ApiError(429, said, "rate_limit_error", "queue_full", later)

    async def messages(self, call: Call) -> AsyncGenerator[tuple[int, ...] | Done]:
        """Yield the settled tokens of a streaming call, then `Done`.

        Leaving the iterator early frees its slot before the engine's next step. Raises ApiError if
        the engine fails.
        """
        with self._admitted(call):
            while True:
                message = await call.ticket.messages.get()
                if isinstance(message, Broken):
                    raise _unavailable(message.reason)
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
            observer(reply)
        except Exception:
            logging.getLogger(__name__).exception("an observer failed")


def _unavailable(reason: str) -> ApiError:
    return ApiError(503, reason, "server_error", "unavailable")
