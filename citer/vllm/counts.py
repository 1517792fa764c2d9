"""What routing inside vLLM has done, in total and for each request.

One `Counts` lives in the process that drafts: in vLLM's worker of tensor-parallel rank 0, as
`runner.drafter.counts`. It is complete up to the last forward before vLLM sees that forward's
tokens, so a finished request's entry is complete when its output arrives.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from citer.decoding.answer import Visit


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


@dataclass
class Counts:
    """The total, and the visits of requests that nobody has taken yet, at most `most` of them.

    The requests visited longest ago are dropped first. So memory stays flat if nobody takes any.
    `citer.serving.log.audited_positions` reads visits. The last one of a request may have judged
    drafts after an EOS or a stop text, which vLLM cuts off: drop positions beyond the answer.
    """

    most: int
    total: Total = field(default_factory=Total)
    requests: OrderedDict[str, list[Visit]] = field(default_factory=OrderedDict)

    def add(self, request_id: str, visit: Visit) -> None:
        """Record a visit of a request, by vLLM's internal id."""
        visits = self.requests.setdefault(request_id, [])
        self.requests.move_to_end(request_id)
        pending_from = visits[-1].kept + 1 if visits else 0  # after the LLM's last token
        self.total.drafted += visit.seen - pending_from
        self.total.accepted += visit.kept - pending_from
        self.total.rejected += visit.kept < visit.seen
        self.total.audited += visit.audited
        self.total.disagreed += len(visit.disagreements)
        visits.append(visit)
        while len(self.requests) > self.most:
            self.requests.popitem(last=False)


class CountingWorker:
    """What vLLM's worker answers to questions of the API. vLLM adds these methods to its worker."""

    model_runner: Any

    def audits(self) -> dict[str, int]:
        """Count the drafts that audits compared with the LLM's choice, by verdict."""
        total = self.model_runner.drafter.counts.total
        return {"agreed": total.audited - total.disagreed, "disagreed": total.disagreed}

    def take_visits(self, request_id: str) -> list[Any]:
        """Return the visits of a request, once. `request_id`: the API's, which vLLM extends."""
        requests = self.model_runner.drafter.counts.requests
        for key in requests:
            if key.rpartition("-")[0] == request_id:
                return plain(requests.pop(key))
        return []


def plain(visits: list[Visit]) -> list[Any]:
    """Return visits as lists, which vLLM sends from its worker to the API."""
    return [[*visit[:4], [list(each) for each in visit.disagreements]] for visit in visits]
