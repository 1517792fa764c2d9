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
from citer.decoding.answer import Answer, Request, Written
from citer.decoding.policy import weight_bytes
from citer.evaluation.cost import Prices
from citer.models.room import check_characters
from citer.models.sampling import stable_hash
from citer.serving.deployment import Deployment, Observer, Reply
from citer.serving.server.fields import Asked, Chat, Completion
from citer.serving.server.metrics import Metrics
from citer.serving.server.refusals import ApiError
from citer.serving.server.releases import Release, Releases
from citer.serving.server.replies import Form
from citer.serving.server.worker import Broken, Ticket, Worker


class Settings(NamedTuple):
    """Settings of the server.

    name: of the model, as clients call it
    queue: how many requests may wait for a slot
    poll: seconds between two looks at the source of the router
    sampling: of requests that do not say how; None is greedy
    questions: which the page at `/` offers, if no keys are set
    """

    name: str
    queue: int
    poll: float
    sampling: SamplingParams | None = None
    questions: Sequence[str] = ()


@dataclass(eq=False, kw_only=True)
class Call(Ticket):
    """A request that can be answered, and the form of its reply. `problem` is None if no chat."""

    form: Form
    problem: Problem | None
    user: str | None
    observers: Sequence[Observer]

    def text(self, answer: Answer) -> str:
        return self.engine.pair.text(answer.token_ids, self.request.stop)


def make_call(asked: Asked, release: Release, name: str, default: SamplingParams | None) -> Call:
    """Check a request to the model `name`. `default` says how answers are sampled.

    Raises InputError, ApiError for another model.
    """
    if asked.model != name:
        found = f"model: {asked.model!r}; expected {name!r}"
        raise ApiError(404, found, code="model_not_found")
    deployment, rule = release.deployment, asked.rule or release.deployment.rule
    policy = deployment.policy(rule)
    prices = Prices.of(deployment.pair, weight_bytes(policy.scorer))
    prompt_ids, problem, key = _prompt(asked, deployment)
    sampling, stop = asked.sampler(default).sampling(key), tuple(asked.stop or ())
    request = Request("prompt", prompt_ids, (), None, sampling, stop, asked.limit)
    deployment.engine.check(request)
    return Call(
        deployment.engine,
        request,
        policy,
        bool(asked.stream),
        form=Form(problem is not None, name, release.version, rule, prices, len(prompt_ids)),
        problem=problem,
        user=asked.user or asked.safety_identifier,
        observers=release.observers,
    )


def _prompt(asked: Asked, deployment: Deployment) -> tuple[tuple[int, ...], Problem | None, str]:
    """Return the prompt, the problem of a chat, and a key that only equal prompts share."""
    pair = deployment.pair
    problem = asked.problem(deployment.tasks) if isinstance(asked, Chat) else None
    text = asked.prompt if isinstance(asked, Completion) else ""
    # To encode a text that cannot fit would hold up others.
    check_characters("prompt", problem.characters if problem else len(text), pair.context)
    if problem:
        return tuple(pair.prompts.prompt_ids(problem)), problem, problem.problem_id
    prompt_ids = tuple(token_ids(text, pair.tokenizer, begins=True))
    return prompt_ids, None, str(stable_hash(str(prompt_ids)))


class Service:
    """Answers calls with the newest release. Enter it in the event loop.

    A call keeps the release with which it was made.
    """

    def __init__(
        self, settings: Settings, releases: Releases, release: Release, metrics: Metrics
    ) -> None:
        self.settings, self.release, self.metrics = settings, release, metrics
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
        if self.worker.failure:
            raise _unavailable(self.worker.failure)
        if (waiting := self.unanswered - self._slots) >= self.settings.queue:
            said, later = f"{waiting} requests wait already; try again later", {"Retry-After": "1"}
            raise ApiError(429, said, "rate_limit_error", "queue_full", later)

    async def messages(self, call: Call) -> AsyncGenerator[tuple[Written, ...] | Answer]:
        """Yield the settled tokens of a streaming call, then its answer.

        Leaving the iterator early frees its slot before the engine's next step. Raises ApiError if
        the engine fails.
        """
        with self._admitted(call):
            while True:
                message = await call.messages.get()
                if isinstance(message, Broken):
                    raise _unavailable(message.reason)
                if isinstance(message, Answer):
                    self._answered(call, message)
                yield message
                if isinstance(message, Answer):
                    return

    async def answer(self, call: Call) -> Answer:
        """Return the answer of a call that does not stream. Raises ApiError."""
        [answer] = [message async for message in self.messages(call)]
        assert isinstance(answer, Answer)
        return answer

    @contextmanager
    def _admitted(self, call: Call) -> Iterator[None]:
        self.check_open()
        self.worker.submit(call)
        try:
            yield
        finally:
            if call in self.worker.open:
                self.metrics.left.inc()
                self.worker.cancel(call)

    def _answered(self, call: Call, answer: Answer) -> None:
        """Count an answer. Observers see those to chats only."""
        self.metrics.answered(answer)
        if call.observers and call.problem:
            text, sampling = call.text(answer), call.request.sampling
            reply = Reply(call.problem, answer, text, sampling, call.form.id, call.user)
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
