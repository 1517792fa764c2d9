"""When the LLM is called, and what it then thinks of the tokens that the SLM wrote meanwhile.

A *visit* is a call of the LLM. It has not yet read what the SLM wrote since the last one, the
*pending* tokens, and reads them in the forward that writes its own: an *audit* looks at what it
would have written in the place of each. Known policies are points of this family:

    CITER (arXiv 2502.01976)                          visit by score, no audit
    speculative decoding (arXiv 2211.17192), greedy   visit every γ tokens, audit 1
    BiLD (arXiv 2302.07863)                           visit by the SLM's own confidence, audit < 1
"""

from dataclasses import dataclass
from typing import Literal, Self, cast, get_args

When = Literal["score", "risk", "every"]
EXPECTED = (
    "expected `score τ`, `risk ρ` or `every γ`, and perhaps `audit β`; "
    "τ, ρ, β in [0, 1], γ a whole number from 1 on"
)


@dataclass(frozen=True, order=True)
class Rule:
    """A policy but for the scores; as text `score 0.9`, `risk 0.8 audit 0.1`, `every 8 audit 1`.

    `visit` by `score`: the SLM's token scores below `at` (τ), and the LLM writes that one instead;
    at 0 the LLM, at 1 the SLM is never run. By `risk`: the product of the pending tokens' scores
    falls below `at` (ρ). `every`: `at` (γ) tokens are pending.

    `audit` (β): the first pending token that the LLM gives less than β times the probability of
    its own choice is rolled back with all after it, and the LLM's takes its place; without one the
    LLM writes the next token. At 0 nothing is rolled back. At 1 an answer ends with a visit, and
    is the LLM's own, token for token, whatever the visits.
    """

    visit: When
    at: float
    audit: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises ValueError, which says what was expected."""
        try:
            visit, at, *rest = str(text).split()
            word, beta = rest or ("audit", 0)
            number = int(at) if visit == "every" else float(at)
            rule = cls(cast(When, visit), number, float(beta))
        except ValueError:
            raise ValueError(f"{text!r}: {EXPECTED}") from None
        if word != "audit" or not rule.in_range:
            raise ValueError(f"{text!r}: {EXPECTED}")
        return rule

    @property
    def in_range(self) -> bool:
        at_fits = self.at >= 1 if self.visit == "every" else 0 <= self.at <= 1
        return self.visit in get_args(When) and at_fits and 0 <= self.audit <= 1

    def __format__(self, spec: str) -> str:
        """Its text, the numbers by `spec`."""
        visit = f"{self.visit} {self.at:{spec}}"
        return f"{visit} audit {self.audit:{spec}}" if self.audit else visit

    def __str__(self) -> str:
        return f"{self}"

    @property
    def asks_slm(self) -> bool:
        return (self.visit, self.at) != ("score", 1)

    @property
    def exact(self) -> bool:
        """Whether the answer is the LLM's own by what the audit does, whatever the visits."""
        return self.audit == 1

    @property
    def withdraws_below(self) -> float:
        """The score that a token needs to be written at all."""
        return self.at if self.visit == "score" else 0.0

    def due(self, risk: float, pending: int) -> bool:
        """Whether so many pending tokens, their scores' product `risk`, call for a visit."""
        if self.visit == "risk":
            return risk < self.at
        return self.visit == "every" and pending >= self.at


SLM, LLM = Rule("score", 0.0), Rule("score", 1.0)  # either model alone
