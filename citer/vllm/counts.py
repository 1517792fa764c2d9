"""What routing inside vLLM has done: in total, and for each request that is logged.

One `Counts` lives in vLLM's worker. Nothing here waits for the device until somebody asks.
"""

from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from citer.decoding.answer import Disagreement, Visit

KEPT = 1024  # logged requests whose visits nobody has taken


class Step(NamedTuple):
    """The N drafts that one forward of the LLM has judged (see `citer.vllm.accept.Judged`)."""

    row_N: Tensor  # the request's row in the batch
    position_N: Tensor  # of the draft in the answer, the prompt's last token being at -1
    draft_N: Tensor
    choice_N: Tensor
    odds_N: Tensor
    kept_N: Tensor  # whether it stands
    audited_N: Tensor  # whether it was compared with the choice, as all up to the first that falls


class Row(NamedTuple):
    """A draft of a `Step`, on the host."""

    row: float
    position: float
    draft: float
    choice: float
    odds: float
    kept: float
    audited: float


class _Copy(NamedTuple):
    """A step on its way to the host."""

    keys: Sequence[str]
    columns_7N: Tensor
    arrived: torch.cuda.Event | None


class Counts:
    """Totals by name, and visits of requests.

    drafted: drafts that the LLM judged
    accepted: those of them that stand
    audited: those that were compared with the LLM's choice
    disagreed: those of them that were not its choice
    visits: forwards of the LLM that judged drafts
    slm_steps: forwards of the SLM
    """

    NAMES = ("drafted", "accepted", "audited", "disagreed")

    def __init__(self, device: torch.device, *, visits: bool) -> None:
        self._total_4 = torch.zeros(len(self.NAMES), dtype=torch.long, device=device)
        self._coming: deque[_Copy] | None = deque() if visits else None
        self._visits: OrderedDict[str, list[Visit]] = OrderedDict()
        self.slm_steps = 0
        self.visits = 0

    @property
    def total(self) -> dict[str, int]:
        own = dict(zip(self.NAMES, self._total_4.tolist(), strict=True))
        return own | {"visits": self.visits, "slm_steps": self.slm_steps}

    def add(self, keys: Sequence[str], step: Step) -> None:
        """Count a step. `keys`: the requests of the batch, by vLLM's internal ids."""
        drafted_N = step.draft_N >= 0
        disagreed_N = step.audited_N & (step.draft_N != step.choice_N)
        counted = (drafted_N, step.kept_N, step.audited_N, disagreed_N)
        self._total_4 += torch.stack([each_N.sum() for each_N in counted])
        if self._coming is not None:
            columns_7N = torch.stack([each_N.double() for each_N in step])
            self._coming.append(_sent(keys, columns_7N))
            self._take_arrived(wait=False)

    def take(self, request_id: str) -> list[Visit]:
        """Return the visits of a request, once. `request_id`: the API's, which vLLM extends."""
        self._take_arrived(wait=True)
        keys = [key for key in self._visits if key.rpartition("-")[0] == request_id]
        found = [self._visits.pop(key) for key in keys]  # a client may have repeated an id
        return found[-1] if found else []

    def _take_arrived(self, *, wait: bool) -> None:
        while self._coming:
            first = self._coming[0]
            if first.arrived and not wait and not first.arrived.query():
                return
            if first.arrived:
                first.arrived.synchronize()
            self._record(self._coming.popleft())

    def _record(self, copy: _Copy) -> None:
        rows = zip(*copy.columns_7N.tolist(), strict=True)
        audited = (Row(*row) for row in rows if row[-1])
        for row, drafts in groupby(audited, attrgetter("row")):
            key = copy.keys[int(row)]
            visits = self._visits.setdefault(key, [])
            self._visits.move_to_end(key)
            visits.extend(_visits([*drafts], visits))
        while len(self._visits) > KEPT:
            self._visits.popitem(last=False)


def _visits(drafts: Sequence[Row], before: Sequence[Visit]) -> Iterator[Visit]:
    """Yield the visit that judged these drafts. Steps without drafts before it make another one."""
    first = int(drafts[0].position)
    if first > (before[-1].kept + 1 if before else 0):
        yield Visit(0, first - 1, first - 1)
    found = tuple(
        Disagreement(int(each.position), int(each.draft), int(each.choice), each.odds)
        for each in drafts
        if each.draft != each.choice
    )
    kept = first + int(sum(each.kept for each in drafts))
    yield Visit(0, first + len(drafts), kept, len(drafts), found)


def _sent(keys: Sequence[str], columns_7N: Tensor) -> _Copy:
    if columns_7N.device.type != "cuda":
        return _Copy(keys, columns_7N, None)
    host_7N = torch.empty(columns_7N.shape, dtype=columns_7N.dtype, pin_memory=True)
    host_7N.copy_(columns_7N, non_blocking=True)
    arrived = torch.cuda.Event()
    arrived.record()
    return _Copy(keys, host_7N, arrived)


def plain(visits: Sequence[Visit]) -> list[Any]:
    """Return visits as lists, which vLLM sends from its worker to the API."""
    return [[*visit[:4], [list(each) for each in visit.disagreements]] for visit in visits]
