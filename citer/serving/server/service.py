"""The server without HTTP: admits requests, gives them to the worker, and changes the release."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Semaphore
from time import monotonic
from typing import NamedTuple

from citer.config.params import SamplingParams
from citer.data.problems import Problem
from citer.data.prompts import token_ids
from citer.decoding.answer import Answer, Request, Written
from citer.decoding.policy import weight_bytes
from citer.errors import InputError
from citer.evaluation.cost import Prices
from citer.models.room import check_characters
from citer.models.sampling import stable_hash
from citer.rule import LLM, Rule
from citer.serving.deployment import Deployment, Observer, Reply
from citer.serving.server.fields import Body, Chat
from citer.serving.server.metrics import Metrics
from citer.serving.server.refusals import ApiError
from citer.serving.server.releases import Release, Releases
from citer.serving.server.replies import Form
from citer.serving.server.worker import Broken, Ticket, Worker
from citer.serving.shadow import Keeper

VERDICTS = {True: "lost", False: "kept", None: "uncounted"}
RAREST = 3600.0  # seconds
UNSEEN = 10_000  # replies that may wait for the observer
WAITING = 64  # requests that may wait for their shadow answers or for the verdict on them
LOG = logging.getLogger(__name__)


class Settings(NamedTuple):
    """Settings of the server."""

    name: str  # of the model, as clients call it
    queue: int  # how many requests may wait for a slot
    poll: float  # seconds between two looks at the source of the router
    sampling: SamplingParams | None = None  # of requests that do not say how; None is greedy
    questions: Sequence[str] = ()  # which the page at `/` offers, if no keys are set


@dataclass(eq=False, kw_only=True)
class Call(Ticket):
    """A request that can be answered, and the form of its reply."""

    form: Form
    problem: Problem | None  # if it is a chat
    user: str | None
    release: Release
    promised: bool  # whether it is one as the promise was made for

    def text(self, answer: Answer) -> str:
        return self.engine.pair.text(answer.token_ids, self.request.stop)


def _prompt(asked: Body, deployment: Deployment) -> tuple[tuple[int, ...], Problem | None, str]:
    """Return the prompt, the problem of a chat, and a key that only equal prompts share."""
    pair = deployment.pair
    # To clean or to encode a text that cannot fit would hold up others.
    check_characters("prompt", asked.characters, pair.context)
    if isinstance(asked, Chat):
        problem = asked.problem(deployment.tasks)
        return tuple(pair.prompts.prompt_ids(problem)), problem, problem.problem_id
    prompt_ids = tuple(token_ids(asked.prompt, pair.tokenizer, begins=True))
    return prompt_ids, None, str(stable_hash(str(prompt_ids)))


class Service:
    """Answers calls, each by the newest release when it came. Enter it in the event loop."""

    def __init__(
        self, settings: Settings, releases: Releases, release: Release, metrics: Metrics
    ) -> None:
        self.settings, self.release, self.metrics = settings, release, metrics
        self._releases, self._room = releases, Semaphore(UNSEEN)
        self.stopped: Callable[[], object] = lambda: None  # called if the engine fails

    async def __aenter__(self) -> None:
        self.worker = Worker(self.stopped)
        self._polling = asyncio.create_task(self._poll())
        self._observing = ThreadPoolExecutor(1, "observers")
        self._judging = ThreadPoolExecutor(1, "judge")  # a verdict may take a minute
        self._refreshing = ThreadPoolExecutor(1, "refresh")  # so that no verdict delays a step
        self._refreshed: Future[None] | None = None
        self._shadowing = set[asyncio.Task[None]]()
        self._alone = asyncio.Lock()  # one shadow answer at a time

    async def __aexit__(self, *_: object) -> None:
        """End all threads. The observer sees all replies first."""
        self._polling.cancel()
        await asyncio.sleep(0)  # a task that is cancelled before it begins does nothing
        for task in self._shadowing:
            task.cancel()
        await asyncio.gather(*self._shadowing, return_exceptions=True)
        self.worker.close()
        self._observing.shutdown()
        self._judging.shutdown(cancel_futures=True)
        self._refreshing.shutdown()

    @property
    def _waiting(self) -> int:
        return self.worker.clients - self.release.deployment.engine.slots

    def call(self, asked: Body) -> Call:
        """Check a request. Raises InputError, ApiError for another model."""
        name, default, release = self.settings.name, self.settings.sampling, self.release
        self.check_name(asked.model)
        deployment = release.deployment
        policy = deployment.policy(asked.rule or release.rule)
        prices, rule = Prices.of(deployment.pair, weight_bytes(policy.scorer)), policy.rule
        prompt_ids, problem, key = _prompt(asked, deployment)
        sampler, stop = asked.sampler(default), tuple(asked.stop or ())
        request = Request("prompt", prompt_ids, (), None, sampler.sampling(key), stop, asked.limit)
        deployment.engine.check(request)
        return Call(
            deployment.engine,
            request,
            policy,
            bool(asked.stream),
            form=Form(problem is not None, name, release.version, rule, prices, len(prompt_ids)),
            problem=problem,
            user=asked.user or asked.safety_identifier,
            release=release,
            # Sampled as at registration, with whichever seed.
            promised=asked.rule is asked.limit is None and not stop and sampler.params == default,
        )

    def check_name(self, model: str) -> None:
        """Raise ApiError for another model."""
        if model != self.settings.name:
            found = f"model: {model!r}; expected {self.settings.name!r}"
            raise ApiError(404, found, code="model_not_found")

    def check_open(self) -> None:
        """Raise ApiError if no call is taken."""
        if self.worker.failure:
            raise _unavailable(self.worker.failure)
        if (waiting := self._waiting) >= self.settings.queue:
            said, later = f"{waiting} requests wait already; try again later", {"Retry-After": "1"}
            raise ApiError(429, said, "rate_limit_error", "queue_full", later)

    async def messages(self, call: Call) -> AsyncGenerator[tuple[Written, ...] | Answer]:
        """Yield the settled tokens of a streaming call, then its answer.

        Leaving the iterator early frees its slot before the engine's next step. Raises ApiError if
        the engine fails.
        """
        self.check_open()
        self.worker.submit(call)
        try:
            while True:
                message = await call.messages.get()
                if isinstance(message, Broken):
                    raise _unavailable(message.reason)
                if isinstance(message, Answer):
                    self._answered(call, message)
                yield message
                if isinstance(message, Answer):
                    return
        finally:
            if call in self.worker.open:
                self.metrics.left.inc()
                self.worker.cancel(call)

    async def answer(self, call: Call) -> Answer:
        """Return the answer of a call that does not stream. Raises ApiError."""
        [answer] = [message async for message in self.messages(call)]
        assert isinstance(answer, Answer)
        return answer

    def _answered(self, call: Call, answer: Answer) -> None:
        """Count an answer. The observer sees those to chats only, after their shadow answers."""
        self.metrics.answered(answer)
        if not call.problem:
            return
        observer, rules = call.release.observer, _drawn(call)
        if observer or rules:
            reply = Reply(call.problem, answer, call.text(answer), call.form.id, call.user)
            if rules:
                room = len(self._shadowing) < WAITING
                task = asyncio.create_task(self._shadow(call, reply, rules if room else ()))
                self._shadowing.add(task)
                task.add_done_callback(self._shadowing.discard)
            else:
                self._see(call, reply)

    def _see(self, call: Call, reply: Reply) -> Future[None] | None:
        """Let the observer see a reply in its own time. If too many wait, the row is lost."""
        if not self._room.acquire(blocking=False):
            if traffic := self._releases.traffic:
                traffic.count("lost", f"{UNSEEN:,} others wait")
            return None
        seen = self._observing.submit(_observe, call.release.observer, reply)
        seen.add_done_callback(lambda _: self._room.release())
        return seen

    async def _shadow(self, call: Call, reply: Reply, rules: Sequence[Rule]) -> None:
        """Let observer and keeper see a reply with its answers by each rule, if there are any."""
        answers, verdict = dict[Rule, Answer](), "dropped"
        try:
            if rules:
                answers = await self._again(call, rules)
        except asyncio.CancelledError:
            pass  # the server ends
        except Exception:
            LOG.exception("no shadow answer, and no verdict on %s", reply.request)
        own = answers.get(LLM)
        reference = call.text(own) if own and not own.truncated else None
        seen = self._see(call, reply._replace(reference=reference))
        self.metrics.shadow_bytes.inc(sum(map(call.form.moved, answers.values())))
        if answers:
            if seen:
                self._judging.submit(seen.result)  # a step makes tables of the log, with this row
            judged = self._judging.submit(_verdict, call, reply, answers)
            with suppress(asyncio.CancelledError):
                verdict = await asyncio.wrap_future(judged)
        self.metrics.shadowed.labels(verdict).inc()

    async def _again(self, call: Call, rules: Sequence[Rule]) -> dict[Rule, Answer]:
        """Answer a call by each rule while slots are free. Returns nothing if one answer fails."""
        request, policy = replace(call.request, patient=True), call.release.deployment.policy
        found = dict[Rule, Answer]()
        async with self._alone:
            for rule in rules:
                if self.release is not call.release:
                    return {}  # evidence about a version that was replaced is of no use
                ticket = Ticket(call.engine, request, policy(rule))
                self.worker.submit(ticket)
                message = await ticket.messages.get()
                if not isinstance(message, Answer):  # the LLM's server or the engine has failed
                    return {}
                found[rule] = message
        return found

    def show(self) -> None:
        """Let the metrics have what is true now."""
        waiting = max(0, self._waiting)
        self.metrics.show(waiting, self.worker.clients - waiting, self.release)

    async def _poll(self) -> None:
        """Take up each new version. One that cannot be loaded changes nothing.

        That one is tried again ever more rarely: to load it takes memory that requests may need.
        """
        waits, due = dict[str, float](), dict[str, float]()  # of routers that cannot be loaded
        while True:
            await asyncio.sleep(self.settings.poll)
            if self.release.keeper and (not self._refreshed or self._refreshed.done()):
                self._refreshed = self._refreshing.submit(_refresh, self.release.keeper)
            router = ""
            try:
                router = await asyncio.to_thread(self._releases.latest)
                if monotonic() >= due.get(router, 0):
                    make = self._releases.made
                    self.release = await asyncio.to_thread(make, router, self.release)
                    waits, due = {}, {}
            except Exception as error:
                said = f"the newest router cannot be used, {self.release.version} stays: {error}"
                LOG.warning(said)
                waits[router] = min(2 * waits.get(router, self.settings.poll), RAREST)
                due[router] = monotonic() + waits[router]


def _observe(observer: Observer | None, reply: Reply) -> None:
    try:
        if observer:
            observer(reply)
    except Exception:
        LOG.exception("the observer failed")


def _drawn(call: Call) -> Sequence[Rule]:
    """Return the rules by which a call is also to be answered; mostly none."""
    keeper = call.release.keeper
    return keeper.draw() if keeper and call.promised and call.form.rule == keeper.rule else ()


def _verdict(call: Call, reply: Reply, answers: Mapping[Rule, Answer]) -> str:
    """Show a keeper the answers to a shadowed request. Returns its verdict on the reply.

    If the reply is the LLM's own, the verdict is on the looser rule.
    """
    keeper, known = call.release.keeper, {call.form.rule: reply.answer, **answers}
    assert keeper
    texts = {rule: None if each.truncated else call.text(each) for rule, each in known.items()}
    try:
        return VERDICTS[keeper.take(reply.problem, texts)[0]]
    except InputError as error:
        LOG.warning("a shadow answer is no evidence: %s", error)
    except Exception:
        LOG.exception("a shadow answer is no evidence")
    return "dropped"


def _refresh(keeper: Keeper) -> None:
    keeper.catch_up()
    keeper.report()


def _unavailable(reason: str) -> ApiError:
    return ApiError(503, reason, "server_error", "unavailable")
