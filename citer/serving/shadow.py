"""Keep a version's promise in a server: choose requests to shadow, judge their answers, step back.

`citer serve` and the plugin for vLLM share this code. They decode the shadow answers themselves.
"""

import json
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random

from citer.config.params import ServeParams
from citer.data.problems import Problem
from citer.data.tasks import find_task
from citer.data.tasks.grading import grade
from citer.data.tasks.task import GraderError
from citer.rule import LLM, Rule
from citer.serving.evidence import Evidence
from citer.serving.promise import Promise, Standing, Step

LOG = logging.getLogger(__name__)
Told = Callable[[str, Standing, Step], object]  # with the version, where it stands, and its step


@dataclass
class Keeper:
    """Keeps the promise of one version. Its evidence may come from other servers, too.

    `told` is called once for each step, by one of the servers. `dropped` counts the shadowed
    requests without evidence: the LLM failed, or too many waited.
    """

    version: str
    promise: Promise
    evidence: Evidence
    settings: ServeParams
    seed: int
    told: Told = lambda *_: None
    clock: Callable[[], float] = time.monotonic  # no clock that somebody can set back
    dropped: int = 0
    standing: Standing = field(init=False)

    def __post_init__(self) -> None:
        # A restarted server must not choose the same places among its requests again.
        self._random = Random(f"{self.seed} {self.evidence.start()}")
        self._last = self.clock()
        self.evidence.declare(self.version, json.dumps(self.recorded))
        self.standing = Standing(self.promise, self.settings.false_alarms)
        self.refresh()

    @property
    def recorded(self) -> dict[str, object]:
        """What `Standing` needs, for those who read the evidence alone."""
        return {
            "promise": self.promise.model_dump(),
            "false_alarms": self.settings.false_alarms,
        }

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

        Chance alone chooses the requests. `LLM` is the LLM alone. An answer by an exact rule is the
        LLM's own already.
        """
        return self._needed if self._random.random() < self.settings.shadow else ()

    @property
    def _needed(self) -> tuple[Rule, ...]:
        looser = self.standing.looser
        return (() if is_own(self.rule) else (LLM,)) + ((looser,) if looser else ())

    def take(self, problem: Problem, texts: Mapping[Rule, str]) -> None:
        """Store what a shadowed request shows, and step back if the evidence asks for it.

        `texts` has its answers: by the rule that served it, and by those of `draw`. Raises
        InputError if the evidence cannot be written.
        """
        llm = next(text for rule, text in texts.items() if is_own(rule))
        for rule, text in texts.items():
            if not is_own(rule) and (found := judged(self.promise, problem, text, llm)):
                self.evidence.add(self.version, str(rule), *found)
        self._last = self.clock()
        self.refresh()

    def refresh(self) -> None:
        """Take in what is new in the evidence, also of other servers."""
        for step in self.standing.take(self.evidence.after(self.version, self.standing.seen)):
            said = f"{self.version}: `{step.before}` → `{step.rule}`: {step.why}"
            LOG.warning("%s", said)
            if self.evidence.claim(step.number):
                self.told(self.version, self.standing, step)


def is_own(rule: Rule) -> bool:
    """Return whether a rule gives the LLM's own text."""
    return rule.exact or not rule.asks_slm


def judged(promise: Promise, problem: Problem, text: str, llm: str) -> tuple[bool, float] | None:
    """Return whether a routed answer is lost against the LLM's, and the limit of that risk.

    Returns None if the promise does not count the request: the LLM's answer is wrong. If the code
    of a user's task fails, the answer is lost.
    """
    if limit := promise.graded if problem.answer is not None else None:
        return (not grade(problem, text), limit) if grade(problem, llm) else None
    try:
        same = find_task(problem.task).same(problem, llm, text)
    except GraderError:
        same = False
    return not same, promise.same
