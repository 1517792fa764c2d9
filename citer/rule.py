"""Rules: when the LLM is called, and which tokens of the SLM it then rejects.

A *visit* is a call of the LLM. A token is *pending* if the SLM wrote it after the last visit. One
forward of the LLM reads the pending tokens and writes its own token. An *audit* compares each
pending token with the LLM's choice at that position, and rejects it by one of four *acceptance
rules* (`citer.decoding.acceptance`). Known methods are special cases:

    CITER (arXiv 2502.01976)                          visit by score, no audit
    speculative decoding (arXiv 2211.17192), greedy   visit every γ tokens, audit 1
    BiLD (arXiv 2302.07863)                           visit by the SLM's own confidence, audit < 1
"""

from dataclasses import dataclass, replace
from math import inf
from typing import Literal, Self, cast, get_args

When = Literal["score", "risk", "every"]
By = Literal["audit", "judge", "kl", "top"]
EXPECTED = (
    "expected `score τ`, `risk ρ` or `every γ`, and perhaps `audit β`, `judge θ`, `kl κ` or "
    "`top k`; τ, ρ, β, θ in [0, 1], κ > 0 and finite, γ and k whole numbers from 1 on"
)
EXACT = {"audit": 1, "judge": 1, "top": 1}  # these reject every token that is not the LLM's choice


@dataclass(frozen=True, order=True)
class Rule:
    """A rule, as text `score 0.9`, `risk 0.8 audit 0.1`, `risk 0.8 judge 0.9` or `every 8 top 3`.

    `visit` says when the LLM is called:

    - `score`: when the score of the SLM's token is below `at` (τ). The LLM then writes this token
      instead. At 0 the LLM never runs, at 1 the SLM never runs.
    - `risk`: when the product of the pending tokens' scores falls below `at` (ρ).
    - `every`: when `at` (γ) tokens are pending.

    `by` names what an audit asks about a pending token that is not the LLM's choice, and `audit` is
    the threshold. The token is rejected

    - `audit` (β): if the LLM gives it less than β times the probability of its own choice;
    - `judge` (θ): if the router's head `judge` scores it below θ;
    - `kl` (κ): if KL(LLM ‖ SLM) exceeds κ nats, or if the LLM is sure of its choice;
    - `top` (k): if it is not among the LLM's k likeliest tokens.

    The first rejected token and all later ones are removed, and the LLM writes its choice there. If
    no token is rejected, the LLM writes the next one. Without an audit, `audit` is 0. If `exact`,
    each answer ends with a visit, and equals the LLM's own answer token for token.
    """

    visit: When
    at: float
    audit: float = 0.0
    by: By = "audit"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a rule. Raises ValueError with the expected form."""
        try:
            visit, at, *rest = str(text).split()
            by, limit = rest or ("audit", "0")
            number = int(at) if visit == "every" else float(at)
            audit = int(limit) if by == "top" else float(limit)
            rule = cls(cast(When, visit), number, audit, cast(By, by))
        except ValueError:
            raise ValueError(f"{text!r}: {EXPECTED}") from None
        if not rule.in_range:
            raise ValueError(f"{text!r}: {EXPECTED}")
        return rule if rule.audit else replace(rule, by="audit")

    @classmethod
    def audited(cls, visit: When, at: float, audit: float | str) -> Self:
        """Make a rule from an audit's β or its text, such as `kl 0.5`. Raises ValueError."""
        return cls.parse(f"{visit} {at} {audit if isinstance(audit, str) else f'audit {audit}'}")

    @property
    def in_range(self) -> bool:
        at_fits = _counts(self.at) if self.visit == "every" else 0 <= self.at <= 1
        return self.visit in get_args(When) and at_fits and self._audit_in_range

    @property
    def _audit_in_range(self) -> bool:
        if self.by in ("audit", "judge"):
            return 0 <= self.audit <= 1
        # An infinite κ would accept tokens where the LLM is sure, and JSON has no infinity.
        return 0 < self.audit < inf if self.by == "kl" else self.by == "top" and _counts(self.audit)

    def __format__(self, spec: str) -> str:
        """Format the rule as text, and its numbers by `spec`."""
        # Tables and cards have counts as floats.
        at = int(self.at) if self.visit == "every" and _counts(self.at) else self.at
        audit = int(self.audit) if self.by == "top" and _counts(self.audit) else self.audit
        visit = f"{self.visit} {at:{spec}}"
        return f"{visit} {self.by} {audit:{spec}}" if audit else visit

    def __str__(self) -> str:
        return f"{self}"

    def refusal(self, sampled: bool, remote: bool) -> str | None:
        """Say why this rule cannot be used for sampled answers or a remote LLM, or return None."""
        accepts = f"a rule with `{self.by} {self.audit:.4g}`"
        if remote and self.by != "audit":
            return f"{accepts}: from this LLM only odds are known, expected `audit β`"
        if sampled and self.by in ("judge", "kl"):
            return f"{accepts}: answers are sampled, expected `audit β` or `top k`"
        return None

    @property
    def asks_slm(self) -> bool:
        return (self.visit, self.at) != ("score", 1)

    @property
    def exact(self) -> bool:
        """Whether audits make every answer equal to the LLM's own."""
        return EXACT.get(self.by) == self.audit

    @property
    def least_score(self) -> float:
        """The SLM's token is not written if its score is below this value."""
        return self.at if self.visit == "score" else 0.0

    def due(self, risk: float, pending: int) -> bool:
        """Return whether a visit is due; `risk` is the product of the `pending` tokens' scores."""
        if self.visit == "risk":
            return risk < self.at
        return self.visit == "every" and pending >= self.at


def _counts(number: float) -> bool:
    return number >= 1 and number % 1 == 0


SLM, LLM = Rule("score", 0.0), Rule("score", 1.0)  # either model alone
