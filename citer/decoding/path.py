"""The state of one policy in a walk."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from citer.decoding.answer import Visit
from citer.decoding.policy import Policy


class Draft(NamedTuple):
    """The SLM's next token, and its score by each scorer."""

    token: int
    scores: Sequence[float]


@dataclass(eq=False)
class Path:
    """The state of one policy. `pending_from` is the position after the LLM's last token."""

    policy: Policy
    scorer: int  # index of the policy's scorer in `Draft.scores`
    pending_from: int = 0
    risk: float = 1.0  # product of the pending tokens' scores
    owed: bool = False  # the LLM was visited and writes the next token
    visits: list[Visit] = field(default_factory=list)

    def __post_init__(self) -> None:
        # Cached, because they are read for every token.
        self.rule = rule = self.policy.rule
        self.asks_slm, self.least_score = rule.asks_slm, rule.least_score
        self.may_be_due = rule.visit != "score" or rule.audit > 0

    def takes_llm_token(self, draft: Draft | None) -> bool:
        """Return whether the LLM writes the next token.

        True without a draft: no path asks the SLM.
        """
        return draft is None or self.owed or draft.scores[self.scorer] < self.least_score

    def due(self, length: int, ended: bool) -> bool:
        """Return whether the rule requires a visit after `length` tokens."""
        pending = length - self.pending_from
        # No visit: no pending token, or the answer ended and is not audited.
        if pending <= 0 or (ended and not self.rule.audit):
            return False
        return (ended and self.rule.exact) or self.rule.due(self.risk, pending)
