"""Watch the drift of served answers: the agreement that audits find, against that at registration.

The audits of answer i checked n_i tokens of the SLM. d_i of them were not the LLM's choice. Given
the answer, d_i is binomial with a probability of its own, and this probability varies between
answers: d_i is beta-binomial with mean n_i·q and variance n_i·q(1-q)·(1 + (n_i-1)ρ). The share q
and the over-dispersion ρ are estimated from the answers of the evaluation, ρ by the method of
moments (Kleinman, JASA 68, 1973, with the weights n_i).

A window is the last `WINDOW` answers with audits. Its number of disagreements, of N = Σ n_i, is
compared with a beta-binomial of the same mean and variance; the variance contains the error of the
estimated q. The control limit is exceeded with probability `ALPHA` in one window. Windows that
slide by one answer are alike, so crossings come in clumps: about one in 313,000 answers.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from threading import Thread
from typing import Any, Self

import numpy as np

from citer.rule import Rule

WINDOW = 200  # answers
ALPHA = 5e-5
CARD_KEY = "agreement"


@dataclass(frozen=True)
class Audited:
    """Numbers of audited answers and tokens. `pairs` is Σ n(n-1) over the answers' n tokens."""

    answers: int
    audited: int
    disagreed: int
    pairs: int

    @classmethod
    def total(cls, counts: Iterable[tuple[int, int]]) -> Self:
        """Sum up (audited, disagreed) of each answer. Those without audits do not count."""
        n, d = np.array([each for each in counts if each[0]], np.int64).reshape(-1, 2).T
        return cls(len(n), int(n.sum()), int(d.sum()), int((n * (n - 1)).sum()))

    @property
    def agreement(self) -> float:
        return 1 - self.disagreed / self.audited


@dataclass(frozen=True)
class Promised(Audited):
    """What the evaluation found under the rule that is served. It is stored on the card."""

    overdispersion: float

    @classmethod
    def measured(cls, counts: Iterable[tuple[int, int]]) -> Self | None:
        """Estimate from (audited, disagreed) of each answer. Returns None without any audit."""
        known = [*counts]
        total = Audited.total(known)
        if not total.audited:
            return None
        q = total.disagreed / total.audited
        n, d = np.array(known, np.float64).T
        excess = ((d - n * q) ** 2).sum() - total.audited * q * (1 - q)
        most = q * (1 - q) * total.pairs
        return cls(**asdict(total), overdispersion=max(excess / most, 0.0) if most else 0.0)

    def limit(self, seen: Audited, alpha: float = ALPHA) -> float:
        """Return the least agreement of answers like these that is no alarm."""
        n, rho = seen.audited, self.overdispersion
        q = (self.disagreed + 0.5) / (self.audited + 1)  # above 0 if nothing disagreed
        error = (self.audited + rho * self.pairs) / self.audited**2  # of q, over q(1 - q)
        spread = (rho * seen.pairs + n**2 * error) / max(n * (n - 1), 1)
        return 1 - (_least_rare(n, q, min(spread, 0.99), alpha) - 1) / n


def _least_rare(n: int, q: float, rho: float, alpha: float) -> int:
    """Return the least k with P(K ≥ k) ≤ alpha for a beta-binomial K of n trials, or n + 1."""
    size = 1 / rho - 1
    k = np.arange(n)
    ratios = (n - k) / (k + 1) * (k + q * size) / (n - k - 1 + (1 - q) * size)
    log_p = np.concatenate([[0.0], np.log(ratios).cumsum()])
    p = np.exp(log_p - log_p.max())
    tail = p[::-1].cumsum()[::-1] / p.sum()
    return int(np.searchsorted(-tail, -alpha))


@dataclass
class Watch:
    """Takes what audits found in the answers by `rule`. It calls `alarmed` once for each crossing.

    The alarm begins when the agreement of a full window is below its limit. It ends when the
    agreement is again at least that at registration, so that an agreement near the limit does not
    raise it again and again. `alarmed` runs in a thread of its own.
    """

    promised: Promised
    rule: Rule
    alarmed: Callable[[dict[str, Any]], object]
    window: int = WINDOW
    alpha: float = ALPHA
    seen: Audited = Audited(0, 0, 0, 0)  # of the window
    alarm: bool = False
    _recent: deque[tuple[int, int]] = field(default_factory=deque)

    def count(self, audited: int, disagreed: int) -> None:
        """Take the numbers of an answer with audits."""
        self._recent.append((audited, disagreed))
        if len(self._recent) > self.window:
            self._recent.popleft()
        self.seen = Audited.total(self._recent)
        if self.seen.answers == self.window:
            self._compare()

    @property
    def limit(self) -> float | None:
        """The control limit of the answers seen, None without any."""
        return self.promised.limit(self.seen, self.alpha) if self.seen.answers else None

    def _compare(self) -> None:
        agreement = self.seen.agreement
        if agreement >= self.promised.agreement:
            self.alarm = False
        elif not self.alarm and agreement < (limit := self.promised.limit(self.seen, self.alpha)):
            self.alarm = True
            found = {"rule": str(self.rule), "answers": self.window}
            found |= {"agreement": agreement, "limit": limit}
            Thread(target=self.alarmed, args=(found,), daemon=True).start()
