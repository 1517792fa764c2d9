"""What routing inside vLLM has done: in total, and for each request that is logged.

One `Counts` lives in vLLM's worker. It waits for the device when somebody asks, and for requests
that are logged once in `STEPS` steps.
"""

from collections import OrderedDict
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

import torch
from prometheus_client import Gauge
from torch import Tensor

STEPS = 64  # kept on the device
KEPT = 1024  # logged requests whose drafts nobody has taken
TOTALS = Gauge("citer_total", "What routing has done since the start", ["what"])  # of the API

# For each step: position, draft, choice, odds and kept (see `Step`) of the drafts of a request that
# were audited. As lists, which vLLM sends from its worker to the API.
Audited = list[list[list[float]]]


class Step(NamedTuple):
    """The N drafts that one forward of the LLM has judged (see `citer.vllm.accept.Judged`)."""

    row_N: Tensor  # the request's row in the batch
    position_N: Tensor  # of the draft in the answer, the prompt's last token being at -1
    draft_N: Tensor
    choice_N: Tensor
    odds_N: Tensor
    kept_N: Tensor  # whether it stands
    audited_N: Tensor  # whether it was compared with the choice, as all up to the first that falls


class Counts:
    """Totals by name, and the audited drafts of requests.

    drafted: drafts that the LLM judged
    accepted: those of them that stand
    audited: those that were compared with the LLM's choice
    disagreed: those of them that were not its choice
    visits: forwards of the LLM that judged drafts
    slm_steps: forwards of the SLM
    """

    NAMES = ("drafted", "accepted", "audited", "disagreed")

    def __init__(self, device: torch.device, *, logged: bool) -> None:
        self._total_4 = torch.zeros(len(self.NAMES), dtype=torch.long, device=device)
        self._logged = logged
        self._steps: list[tuple[Sequence[str], Tensor]] = []
        self._audited: OrderedDict[str, Audited] = OrderedDict()
        self.slm_steps = 0
        self.visits = 0

    @property
    def total(self) -> dict[str, int]:
        own = dict(zip(self.NAMES, self._total_4.tolist(), strict=True))
        return own | {"visits": self.visits, "slm_steps": self.slm_steps}

    def add(self, keys: Sequence[str], step: Step) -> None:
        """Count a step. `keys`: the requests of the batch, by vLLM's internal ids."""
        self.visits += 1
        drafted_N = step.draft_N >= 0
        disagreed_N = step.audited_N & (step.draft_N != step.choice_N)
        counted = (drafted_N, step.kept_N, step.audited_N, disagreed_N)
        self._total_4 += torch.stack([each_N.sum() for each_N in counted])
        if self._logged:
            self._steps.append((keys, torch.stack([each_N.double() for each_N in step])))
        if len(self._steps) == STEPS:
            self._fetch()

    def take(self, request_id: str) -> Audited:
        """Return a request's audited drafts, once. `request_id`: the API's, which vLLM extends."""
        self._fetch()
        keys = [key for key in self._audited if key.rpartition("-")[0] == request_id]
        found = [self._audited.pop(key) for key in keys]  # a client may have repeated an id
        return found[-1] if found else []

    def _fetch(self) -> None:
        for keys, columns_7N in self._steps:
            drafts = (each for each in zip(*columns_7N.tolist(), strict=True) if each[-1])
            for row, own in groupby(drafts, itemgetter(0)):
                key = keys[int(row)]
                self._audited.setdefault(key, []).append([[*each[1:-1]] for each in own])
                self._audited.move_to_end(key)
        self._steps.clear()
        while len(self._audited) > KEPT:
            self._audited.popitem(last=False)
