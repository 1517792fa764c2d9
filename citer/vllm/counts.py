"""What routing inside vLLM has done, in total and for each request.

One `Counts` lives in the process that drafts: in vLLM's worker of tensor-parallel rank 0, as
`runner.drafter.counts`. It is complete up to the last forward before vLLM sees that forward's
tokens, so a finished request's entry is complete when its output arrives.
"""

from collections import OrderedDict
from dataclasses import dataclass, field

from citer.decoding.answer import Visit
from citer.rule import Rule


@dataclass(slots=True)
class Total:
    """Sums since the start, over all requests.

    llm_forwards: of the LLM, at the batch size that vLLM ran, prefills included
    slm_forwards: of the SLM, at the batch size that was drafting
    drafted: tokens of the SLM that the LLM judged
    accepted: those of them that it kept
    rejected: visits that rejected one; drafts after a rejected one are dropped, and not counted
    audited: drafts that were compared with the LLM's choice (β above 0, greedy requests)
    disagreed: those of them that were not its choice
    """

    llm_forwards: int = 0
    slm_forwards: int = 0
    drafted: int = 0
    accepted: int = 0
    rejected: int = 0
    audited: int = 0
    disagreed: int = 0


@dataclass(slots=True)
class Routed:
    """A request: its rule, and its visits so far, as the engine records them.

    `citer.serving.log.audited_positions` reads `visits`. The last visit may have judged drafts
    after an EOS or a stop text, which vLLM cuts off: drop positions beyond the answer's own tokens.
    """

    rule: Rule
    visits: list[Visit] = field(default_factory=list)

    @property
    def pending_from(self) -> int:
        """The position after the LLM's last token."""
        return self.visits[-1].kept + 1 if self.visits else 0

    @property
    def llm_steps(self) -> int:
        return len(self.visits)

    @property
    def drafted(self) -> int:
        """Tokens of the SLM that the LLM judged."""
        return self.accepted + sum(visit.seen - visit.kept for visit in self.visits)

    @property
    def accepted(self) -> int:
        """Tokens of the SLM that the LLM kept: all up to its last token but its own."""
        return self.pending_from - len(self.visits)

    @property
    def rejected(self) -> int:
        """Visits that rejected a draft."""
        return sum(visit.kept < visit.seen for visit in self.visits)


@dataclass
class Counts:
    """The total, and the requests that nobody has taken yet, at most `most` of them.

    The requests visited longest ago are dropped first. So memory stays flat if nobody takes any.
    """

    most: int
    total: Total = field(default_factory=Total)
    requests: OrderedDict[str, Routed] = field(default_factory=OrderedDict)

    def add(self, request_id: str, rule: Rule, visit: Visit) -> None:
        """Record a visit of a request, by vLLM's internal id."""
        routed = self.requests.setdefault(request_id, Routed(rule))
        self.requests.move_to_end(request_id)
        self.total.drafted += visit.seen - routed.pending_from
        self.total.accepted += visit.kept - routed.pending_from
        self.total.rejected += visit.kept < visit.seen
        self.total.audited += visit.audited
        self.total.disagreed += len(visit.disagreements)
        routed.visits.append(visit)
        while len(self.requests) > self.most:
            self.requests.popitem(last=False)

    def take(self, request_id: str) -> Routed | None:
        """Remove and return a request's entry. None if it is unknown, or was dropped."""
        return self.requests.pop(request_id, None)
