"""Watch the agreement that audits find in served answers, against that at registration."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any

from pydantic import TypeAdapter, ValidationError

from citer.errors import InputError
from citer.models.bundle import read_card
from citer.models.sampling import ALL_GREEDY, Sampler
from citer.rule import Rule
from citer.sections import complaint
from citer.serving.agreement import ALPHA, CARD_KEY, WINDOW, Audited, Promised
from citer.serving.deployment import Reply, stored_rule


def promised(bundle: Path, rule: Rule) -> Promised:
    """Read from a registered router what its evaluation found under `rule`.

    Raises InputError if the agreement under that rule is unknown.
    """
    if not rule.audit:
        raise InputError(f"`{rule}` has no audit, so the models are not compared")
    card = read_card(bundle)
    if rule != stored_rule(bundle):
        raise InputError(f"`{rule}` is not the rule that was evaluated, `{stored_rule(bundle)}`")
    if not card.get(CARD_KEY):
        raise InputError(
            f"no `{CARD_KEY}` in router.json; expected a router that is registered now"
        )
    try:
        return TypeAdapter(Promised).validate_python(card[CARD_KEY])
    except ValidationError as error:
        raise InputError(f"router.json: {CARD_KEY}.{complaint(error)}") from None


@dataclass
class Watch:
    """An observer of the answers by `rule`. It calls `alarmed` once for each crossing.

    The alarm begins when the agreement of a full window is below its limit. It ends when the
    agreement is again at least that at registration, so that an agreement near the limit does not
    raise it again and again. `alarmed` runs in a thread of its own. Only answers that are sampled
    as by `sampler` count.
    """

    promised: Promised
    rule: Rule
    alarmed: Callable[[dict[str, Any]], object]
    sampler: Sampler = ALL_GREEDY
    window: int = WINDOW
    alpha: float = ALPHA
    seen: Audited = field(default_factory=lambda: Audited(0, 0, 0, 0))
    alarm: bool = False
    _recent: deque[Audited] = field(default_factory=deque)

    def answered(self, reply: Reply) -> None:
        counts = reply.answer.counts
        settings = [each and each[:3] for each in (reply.sampling, self.sampler.sampling(""))]
        alike = reply.answer.policy.rule == self.rule and settings[0] == settings[1]
        if counts.audited and alike:
            self.count(counts.audited, counts.disagreed)

    def count(self, audited: int, disagreed: int) -> None:
        """Take the numbers of an answer with audits."""
        self._recent.append(Audited(1, audited, disagreed, audited * (audited - 1)))
        self.seen += self._recent[-1]
        if self.seen.answers > self.window:
            self.seen -= self._recent.popleft()
        if self.seen.answers == self.window:
            self._judge()

    @property
    def limit(self) -> float | None:
        """The control limit of the answers seen, None without any."""
        return self.promised.limit(self.seen, self.alpha) if self.seen.answers else None

    def _judge(self) -> None:
        if self.seen.agreement >= self.promised.agreement:
            self.alarm = False
        elif not self.alarm and self.seen.agreement < self.promised.limit(self.seen, self.alpha):
            self.alarm = True
            Thread(target=self.alarmed, args=(self._found(),), daemon=True).start()

    def _found(self) -> dict[str, Any]:
        found = {"agreement": self.seen.agreement, "limit": self.limit}
        return {"rule": str(self.rule), "answers": self.window, **found}
