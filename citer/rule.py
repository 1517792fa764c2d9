"""Rules: when the LLM is called, and which tokens of the SLM it then rejects.

Known methods are special cases:

    CITER (arXiv 2502.01976)                          visit by score, no audit
    speculative decoding (arXiv 2211.17192), greedy   visit every γ tokens, audit 1
    BiLD (arXiv 2302.07863)                           visit by the SLM's own confidence, audit < 1
"""

import re
from dataclasses import dataclass
from typing import Literal, Self, cast, get_args

When = Literal["score", "risk", "every"]
Drafter = Literal["slm", "lookup", "both"]
EXPECTED = (
    "expected `score τ`, `risk ρ` or `every γ`, and perhaps `audit β`, `by SCORER`, `from both` or "
    "`from lookup`, and `cap K`; τ, ρ, β in [0, 1], γ and K whole numbers from 1 on; `from` needs "
    "an audit above 0, `from lookup` no scorer; at most 200 characters"
)
LONGEST = 200  # characters: servers keep the texts of clients' rules
TEXT = re.compile(
    r"\s*(\w+)\s+(\S+)(?:\s+audit\s+(\S+))?(?:\s+by\s+(\w+))?"
    r"(?:\s+from\s+(lookup|both))?(?:\s+cap\s+([1-9]\d*))?\s*"
)


@dataclass(frozen=True, order=True)
class Rule:
    """A rule, as text `score 0.9`, `risk 0.8 audit 0.1 by logistic` or `every 8 audit 1`.

    A *visit* is a call of the LLM. A token is *pending* if the SLM wrote it after the last visit.
    One forward of the LLM reads the pending tokens and writes its own token. `visit` says when:

    - `score`: when the score of the SLM's token is below `at` (τ). The LLM then writes this token
      instead. At 0 the LLM never runs, at 1 the SLM never runs.
    - `risk`: when the product of the pending tokens' scores falls below `at` (ρ).
    - `every`: when `at` (γ) tokens are pending.

    An audit rejects a pending token that is not the LLM's choice if the LLM gives it less than
    `audit` (β) times the probability of its own choice. The first rejected token and all later ones
    are removed, and the LLM writes its choice there. Without an audit, `audit` is 0. If `exact`,
    each answer ends with a visit, and equals the LLM's own answer token for token.

    `by` names the scorer (`citer.decoding.policy`). If it is empty, a router's head is the scorer.

    `draft` names the drafter. A `lookup` copies the next token from an earlier place of the text
    (`citer.decoding.lookup`); where it finds none, the LLM writes the token. Under `both` the SLM
    drafts it there. If the drafter is not the SLM, each answer ends with a visit.

    With a `cap` (K, 0: none), the LLM reads the prompt and writes the first token. A visit is due
    also when K tokens are pending, and each answer ends with a visit. Without an audit, the visits
    reject nothing.
    """

    visit: When
    at: float
    audit: float = 0.0
    by: str = ""
    draft: Drafter = "slm"
    cap: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a rule. Raises ValueError with the expected form."""
        found = TEXT.fullmatch(str(text)) if len(str(text)) <= LONGEST else None
        visit, at, audit, by, draft, cap = found.groups() if found else [""] * 6
        try:
            number = int(at) if visit == "every" else float(at)
            how = cast(Drafter, draft or "slm"), int(cap or 0)
            return cls(cast(When, visit), number, float(audit or 0), by or "", *how)
        except ValueError:
            raise ValueError(f"{text!r}: {EXPECTED}") from None

    def __post_init__(self) -> None:
        """Raises ValueError with the expected form."""
        at_fits = _counts(self.at) if self.visit == "every" else 0 <= self.at <= 1
        by_fits = not self.by or self.by.isidentifier()
        audit_fits = 0 <= self.audit <= 1
        cap_fits = not self.cap or _counts(self.cap)
        needs = {"slm": True, "lookup": self.audit > 0 and not self.by, "both": self.audit > 0}
        fits = at_fits and audit_fits and by_fits and cap_fits
        if not (self.visit in get_args(When) and fits and needs.get(self.draft)):
            raise ValueError(f"'{self}': {EXPECTED}")

    def __format__(self, spec: str) -> str:
        """Format the rule as text, and its numbers by `spec`."""
        # Tables and cards have counts as floats.
        at = int(self.at) if self.visit == "every" and _counts(self.at) else self.at
        visit = f"{self.visit} {at:{spec}}"
        audit = f" audit {self.audit:{spec}}" if self.audit else ""
        by = f" by {self.by}" if self.by else ""
        cap = f" cap {self.cap}" if self.cap else ""
        draft = "" if self.draft == "slm" else f" from {self.draft}"
        return f"{visit}{audit}{by}{draft}{cap}"

    def __str__(self) -> str:
        return f"{self}"

    @property
    def asks_slm(self) -> bool:
        """Whether the SLM, or another drafter, ever runs."""
        return (self.visit, self.at) != ("score", 1)

    @property
    def exact(self) -> bool:
        """Whether audits make every answer equal to the LLM's own."""
        return self.audit == 1

    @property
    def ends_with_visit(self) -> bool:
        """Whether the LLM reads every token before the answer is final."""
        return self.exact or self.cap > 0 or self.draft != "slm"

    @property
    def least_score(self) -> float:
        """The SLM's token is not written if its score is below this value."""
        return self.at if self.visit == "score" else 0.0

    def due(self, risk: float, pending: int) -> bool:
        """Return whether a visit is due; `risk` is the product of the `pending` tokens' scores."""
        if self.cap and pending >= self.cap:
            return True
        if self.visit == "risk":
            return risk < self.at
        return self.visit == "every" and pending >= self.at


def _counts(number: float) -> bool:
    return number >= 1 and number % 1 == 0


SLM, LLM = Rule("score", 0.0), Rule("score", 1.0)  # either model alone
