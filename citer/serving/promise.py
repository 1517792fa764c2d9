"""A version's promise under traffic, and how its rule steps back along the certified path.

Some requests are also answered by the LLM alone. Such a *shadow answer* is lost if it differs from
the routed one; where the request has a right answer, if the routed one is wrong and the LLM's is
right. All that follows from the losses is computed from them again at each start, in their order.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from citer.errors import InputError
from citer.rule import LLM, Rule
from citer.sections import complaint
from citer.serving.martingales import BETTER, Detector, Product
from citer.storage.tables import read_json

CARD_KEY = "promise"
Limit = Annotated[float, Field(gt=0, lt=1)]


class Promise(BaseModel):
    """What a version's certificate says, for its server. Registration stores it on the card."""

    model_config = ConfigDict(extra="forbid")

    # The deployed rule, then stricter ones that validation certified; the last one needs no
    # certificate, since it is exact or the LLM alone.
    path: Annotated[list[str], Field(min_length=2)]
    # Of P(routed wrong | LLM right), for requests with a right answer; None: judged as the others.
    graded: Limit | None
    same: Limit  # of P(answer differs from the LLM's), for all others
    delta: Limit  # 1 - the confidence
    sampling: str = "greedy"  # of the answers that it is about, as in `Conditions`
    max_new_tokens: int | None = None  # of these answers; None: registered by an earlier citer

    @property
    def rules(self) -> tuple[Rule, ...]:
        return tuple(map(Rule.parse, self.path))


def stored_promise(bundle: Path) -> Promise:
    """Read the promise of a registered router. Raises InputError if it has none."""
    card = read_json(bundle / "router.json")
    if CARD_KEY not in card:
        raise InputError(f"{bundle}: no `{CARD_KEY}` in router.json: its rule is not certified")
    try:
        return Promise.model_validate(card[CARD_KEY])
    except ValidationError as error:
        raise InputError(f"{bundle}/router.json: {CARD_KEY}.{complaint(error)}") from None


def path_back(deployed: Rule, steps: Sequence[Mapping[str, Any]]) -> list[Rule]:
    """Return the deployed rule, and the rules to step back to (`path.json` has the steps).

    Each next rule is the cheapest certified one that lost at most half as many validation
    questions, and no more held-out ones. The last one is exact, or the LLM alone. Each of the
    others is cheaper than the last.
    """
    path, last = [deployed], next(each for each in steps if _rule(each) == deployed)
    passed = [each for each in steps if each["passed"] and _cost(each) < 1]
    safest = min((each for each in passed if _rule(each).exact), key=_cost, default=None)
    cheaper = [each for each in passed if not safest or _cost(each) < _cost(safest)]
    while stricter := [each for each in cheaper if _halves(each, last)]:
        last = min(stricter, key=_cost)
        path.append(_rule(last))
    return [*(rule for rule in path if not rule.exact), _rule(safest) if safest else LLM]


def _rule(step: Mapping[str, Any]) -> Rule:
    return Rule.parse(step["rule"])


def _cost(step: Mapping[str, Any]) -> float:
    return float(step["validation"]["cost"])


def _halves(step: Mapping[str, Any], last: Mapping[str, Any]) -> bool:
    lost, before = (each["validation"]["discordant"] for each in (step, last))
    stricter = before > 0 and lost <= before / 2
    return stricter and bool(step["held_out"]["discordant"] <= last["held_out"]["discordant"])


def is_own(rule: Rule) -> bool:
    """Return whether a rule gives the LLM's own text."""
    return rule.exact or not rule.asks_slm


class Entry(NamedTuple):
    """A row of the evidence: a shadow answer, or a person's step forward, whose `rule` is empty."""

    number: int
    at: str  # UTC, for people only; the order of `number` counts
    rule: str = ""
    lost: bool = False  # whether the answer by `rule` was lost
    limit: float = 0.5  # the promised risk of such an answer


class Step(NamedTuple):
    """A change of the rule in force, by the entry of this number, and the evidence until then."""

    number: int
    at: str
    before: Rule
    rule: Rule
    why: str
    back: bool  # else forward
    shadowed: int
    lost: int
    e_detector: float
    e_value: float  # back: against the promise of the rule before; forward: for that of `rule`


@dataclass
class Standing:
    """Where the promise stands after some entries. `false_alarms` is as in `ShadowParams`.

    Shadow answers by the rule in force may take it one step back; those by the rule before it say
    when to step forward again. A step begins new evidence.
    """

    promise: Promise
    false_alarms: float
    place: int = 0
    steps: list[Step] = field(default_factory=list)
    seen: int = 0  # the number of the last entry
    at: str = ""  # its time
    shadowed: int = 0  # answers by the rule in force, since the last step
    lost: int = 0
    detector: Detector = field(default_factory=Detector)
    product: Product = field(default_factory=Product)
    forward: Product = field(default_factory=lambda: Product(BETTER))

    @property
    def rule(self) -> Rule:
        """The rule in force."""
        return self.promise.rules[self.place]

    @property
    def looser(self) -> Rule | None:
        """The rule from which the last step back was taken, None without one."""
        return self.promise.rules[self.place - 1] if self.place else None

    @property
    def may_step_forward(self) -> bool:
        """Whether the looser rule keeps the promise again, at confidence 1 - delta."""
        return self.place > 0 and self.forward.value >= 1 / self.promise.delta

    def take(self, entries: Iterable[Entry]) -> list[Step]:
        """Take further entries in their order. Return the steps that they caused."""
        before = len(self.steps)
        for entry in entries:
            self.seen, self.at = entry.number, entry.at
            if not entry.rule:
                if self.may_step_forward:  # two people may have asked for the same step
                    self._step(entry, -1, "a person stepped forward")
            elif entry.rule == str(self.rule):
                self._count(entry)
            elif entry.rule == str(self.looser):
                self.forward.take(entry.lost, entry.limit)
        return self.steps[before:]

    def _count(self, entry: Entry) -> None:
        self.shadowed, self.lost = self.shadowed + 1, self.lost + entry.lost
        self.detector.take(entry.lost, entry.limit)
        self.product.take(entry.lost, entry.limit)
        if self.detector.value >= self.false_alarms:
            why = f"{self.lost} of {self.shadowed} shadow answers lost, e-detector"
            self._step(entry, 1, f"{why} {self.detector.value:.4g} ≥ {self.false_alarms:g}")

    def _step(self, entry: Entry, change: int, why: str) -> None:
        place = min(self.place + change, len(self.promise.path) - 1)
        before, self.place = self.rule, place
        back = change > 0
        e_value = (self.product if back else self.forward).value
        seen = self.shadowed, self.lost, self.detector.value, e_value
        self.steps.append(Step(entry.number, entry.at, before, self.rule, why, back, *seen))
        self.shadowed = self.lost = 0
        self.detector, self.product, self.forward = Detector(), Product(), Product(BETTER)
