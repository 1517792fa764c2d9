"""Keep a version's promise in a server: choose requests to shadow, judge their answers, step back.

`citer serve` and the plugin for vLLM share this code. They decode the shadow answers themselves.
"""

import json
import logging
import multiprocessing
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from random import Random
from threading import Lock
from typing import Any

from citer.config.params import ShadowParams
from citer.data.problems import Problem
from citer.data.tasks import find_task
from citer.data.tasks.grading import grade, same
from citer.data.tasks.own_box import PARENT_DEATH, prctl
from citer.data.tasks.task import GraderError
from citer.errors import InputError
from citer.rule import LLM, Rule
from citer.serving.evidence import Evidence, hours_since, now
from citer.serving.promise import Promise, Standing, Step, is_own

LOG = logging.getLogger(__name__)
# Gets a version, where it stands, and its step, or None if there is new evidence only.
Told = Callable[[str, Standing, Step | None], object]
Verdict = tuple[bool, float] | None  # as `judged` returns it
SECONDS = 60.0  # for a verdict


@dataclass
class Keeper:
    """Keeps the promise of one version. Its evidence may come from other servers, too.

    `told` is called once for each step, by one of the servers that have it, and by `report`.
    `stepped` is called before, by each of them. `judge` is `judged`, or calls it.
    """

    version: str
    promise: Promise
    evidence: Evidence
    settings: ShadowParams
    told: Told | None = None
    judge: Callable[..., Verdict] = lambda *asked: judged(*asked)
    stepped: Callable[[], object] | None = None
    clock: Callable[[], float] = time.monotonic  # no clock that somebody can set back
    random: Random = field(default_factory=Random)
    standing: Standing = field(init=False)

    def __post_init__(self) -> None:
        self._last, self._said = self.clock(), False  # whether it was said that it lapsed
        self._alone = Lock()
        declared = self._declared()
        self._reported, alarms = declared["after"], declared["false_alarms"]
        if alarms != self.settings.false_alarms:
            said = "serve.false_alarms: %g is not used: the evidence of %s was begun with %g"
            LOG.warning(said, self.settings.false_alarms, self.version, alarms)
        self.standing = Standing(self.promise, alarms, seen=self._reported)
        self.refresh()
        last = max(self.standing.at, declared["since"])  # a restart is no evidence
        self._last = self.clock() - 3600 * max(0, hours_since(last))

    def _declared(self) -> dict[str, Any]:
        """Record the promise, and how it is kept. Return what the evidence has of it.

        What a server of this promise has recorded stays: with other `false_alarms`, steps would
        come or go, and servers would differ.
        """
        before, known = self._known()
        entries = () if known else self.evidence.after(self.version)
        own: dict[str, Any] = {"promise": self.promise.model_dump(), "since": now()}
        own["after"] = max((each.number for each in entries), default=0)
        own |= {"false_alarms": self.settings.false_alarms, **known}
        own["shadow_deadline"] = self.settings.shadow_deadline
        self.evidence.declare(self.version, json.dumps(own), before)
        return own | self._known()[1]

    def _known(self) -> tuple[str, dict[str, Any]]:
        """Return what is recorded, and its fields, none if it is of another router.

        A name may come again, in another registry or as a folder with another content.
        """
        recorded = self.evidence.promises().get(self.version, "")
        with suppress(ValueError, LookupError, TypeError):
            known = json.loads(recorded)
            if Promise.model_validate(known["promise"]) == self.promise:
                return recorded, known
        return recorded, {}

    @property
    def rule(self) -> Rule:
        """The rule in force."""
        return self.standing.rule

    @property
    def lapsed(self) -> bool:
        """Whether there was no evidence for too long, so that there is no promise."""
        waited = self.clock() - self._last
        return bool(self._needed) and waited > 3600 * self.settings.shadow_deadline

    def draw(self) -> tuple[Rule, ...]:
        """Return the rules by which the next request is also to be answered; mostly none.

        Chance alone chooses the requests. An exact rule's answer is the LLM's own already.
        """
        return self._needed if self.random.random() < self.settings.shadow else ()

    @property
    def _needed(self) -> tuple[Rule, ...]:
        looser = self.standing.looser
        return (() if is_own(self.rule) else (LLM,)) + ((looser,) if looser else ())

    def take(self, problem: Problem, texts: Mapping[Rule, str | None]) -> list[bool | None]:
        """Store what a shadowed request shows, and step back if the evidence asks for it.

        `texts` has its answers: by the rule that served it, and by those of `draw`; None for one
        that was cut off. Returns whether each routed one was lost, None if it does not count. One
        thread calls this. Raises InputError if the evidence cannot be written.
        """
        [llm, *_] = (text for rule, text in texts.items() if is_own(rule))
        verdicts = list[bool | None]()
        for rule, text in texts.items():
            if not is_own(rule):
                found = self.judge(self.promise, problem, text, llm)
                verdicts.append(found and found[0])
                if found:
                    self.evidence.add(self.version, str(rule), *found)
        self.catch_up()
        return verdicts

    def catch_up(self) -> None:
        """Refresh, or warn. Then a later call takes in what counts already."""
        try:
            self.refresh()
        except InputError as error:
            LOG.warning("%s", error)

    def refresh(self) -> None:
        """Take in what is new in the evidence, also of other servers. Threads may call it."""
        with self._alone:
            if entries := self.evidence.after(self.version, self.standing.seen):
                self._last = self.clock()
            if self.lapsed and not self._said:
                hours = self.settings.shadow_deadline
                LOG.warning("%s: no promise: no shadow answer for %g hours", self.version, hours)
            self._said = self.lapsed
            for step in self.standing.take(entries):
                said = f"{self.version}: `{step.before}` → `{step.rule}`: {step.why}"
                LOG.warning("%s", said)
                if self.stepped:
                    self.stepped()
                if self.told and self.evidence.claim(step.number):
                    self.told(self.version, self.standing, step)

    def report(self) -> None:
        """Tell where the promise stands, if there is evidence since the last call."""
        if self.told and self.standing.seen > self._reported:
            self._reported = self.standing.seen
            self.told(self.version, self.standing, None)


def judged(promise: Promise, problem: Problem, text: str | None, llm: str | None) -> Verdict:
    """Return whether a routed answer is lost against the LLM's, and the limit of that risk.

    Returns None if the promise does not count the request: the LLM's answer is wrong, or nobody can
    say which one is right. One that was cut off, None, is always wrong. If the code of a user's
    task fails, the answer is lost.
    """
    graded = promise.graded if problem.answer is not None else None
    if llm is None or (graded and not grade(problem, llm)):
        return None
    if promise.graded and not graded and not find_task(problem.task).right_is_same:
        return None  # two right answers may differ
    limit = graded or promise.same
    if text is None:
        return True, limit
    if graded:
        return not grade(problem, text), limit
    try:
        return not same(problem, llm, text), limit
    except GraderError:
        return True, limit


class Judge:
    """Calls `judged` in a process of its own, which is ended if it takes too long.

    Clients choose what is compared. No thread could be stopped that computes 9^9^9, and it would
    stop all others. Such a request does not count.
    """

    _process: multiprocessing.process.BaseProcess | None = None
    _pipe: Connection

    def __call__(self, *asked: object) -> Verdict:
        if not self._process:
            context = multiprocessing.get_context("spawn")
            self._pipe, theirs = context.Pipe()
            self._process = context.Process(target=_judge, args=(theirs,), daemon=True)
            self._process.start()
            theirs.close()
        problem = "the process that judges it has ended"
        with suppress(EOFError, OSError):
            self._pipe.send(asked)
            if self._pipe.poll(SECONDS):
                verdict: Verdict = self._pipe.recv()
                return verdict
            problem = f"no verdict within {SECONDS:g} s"
        LOG.warning("a shadow answer is not counted: %s", problem)
        self._process.kill()
        self._process = None
        return None


def _judge(pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server ends this process
    prctl(PARENT_DEATH, signal.SIGKILL)  # also if it is killed
    with suppress(EOFError):
        while True:
            pipe.send(judged(*pipe.recv()))
