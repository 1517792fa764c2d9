"""What vLLM's worker knows of routing: the rules of its requests, and what became of their drafts.

Nothing here imports vLLM, and nothing waits for the device.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from citer.decoding.policy import Scorer, StepView, scorer_for
from citer.models.router import Router
from citer.models.vocabulary import Vocabulary
from citer.rule import Rule
from citer.vllm.accept import judge, raise_drafts
from citer.vllm.counts import Counts, Step
from citer.vllm.drafting import Flag, Round, Rules
from citer.vllm.loading import Served

Slots = NDArray[np.integer[Any]]


class Rows(NamedTuple):
    """The N rows of the LLM's logits. Row n judges the draft that its request's row n + 1 reads."""

    slot_N: Tensor  # the request's slot
    local_N: Tensor  # place among the rows of the request, from 0
    input_N: Tensor  # the token that the row reads

    @property
    def draft_N(self) -> Tensor:
        """The drafts, -1 where there is none."""
        next_N, place_N = self.input_N.roll(-1).long(), self.local_N.roll(-1)
        place_N[-1:] = 0
        return next_N.masked_fill(place_N != self.local_N + 1, -1)


@dataclass
class Drafter:
    """The scorers of the SLM that vLLM runs, and what ends its rounds of drafts."""

    router: Router
    vocabulary: Vocabulary
    eos_E: Tensor
    done: Flag
    scorers: list[Scorer] = field(default_factory=list)

    def place(self, rule: Rule) -> int:
        """Return the place of a rule's scorer among those that are read."""
        scorer = scorer_for(self.router, rule)
        if scorer not in self.scorers:
            self.scorers.append(scorer)
        return self.scorers.index(scorer)

    def scores(self, token_N: Tensor, hidden_NH: Tensor, logits_NV: Tensor) -> Tensor:
        """Return score_NC, by all scorers, for a step of the SLM."""
        choices_NV = self.vocabulary.choices(logits_NV.float())
        view = StepView(hidden_NH, choices_NV, token_N, token_N)
        return torch.stack([scorer(view) for scorer in self.scorers], 1)


class Routing:
    """The rules of vLLM's requests."""

    def __init__(
        self, served: Served, slots: int, device: torch.device, drafter: Drafter | None
    ) -> None:
        self.served = served
        self.rules = Rules(slots, device)
        self.counts = Counts(device, logged=served.logged)
        self.drafter = drafter  # None if vLLM does not draft with an SLM
        self._drafted_S = torch.zeros(slots, dtype=torch.long, device=device)
        self._judged: list[tuple[Tensor, ...]] = []

    def add(self, slot: int, rule: Rule) -> None:
        """Let a slot's request have this rule."""
        place = self.drafter.place(rule) if self.drafter else 0
        self.rules.put(slot, rule, place, self.served.drafts)

    def begin(self, slots: Slots, slot_N: Tensor, written_N: Tensor, most: int) -> Round | None:
        """Begin a round of drafts for these slots. Return None if none of them is routed.

        `written_N`: tokens that the LLM has just written. A row without any is still in its prompt.
        """
        assert self.drafter
        self._drafted_S[slot_N] = 0
        if not (routed := self.rules.most(slots)):
            return None
        own = self.rules.limits.rows(slot_N)
        own = own._replace(pending_S=own.pending_S * (written_N > 0))
        return Round(own, min(most, routed), self.drafter.eos_E, self.drafter.done)

    def end(self, slot_N: Tensor, ended: Round) -> None:
        """End a round: from now on only its drafts count."""
        self._drafted_S[slot_N] = ended.drafted_N
        self.counts.slm_steps += ended.steps

    def withdrawn(self, rows: Rows) -> Tensor:
        """Return which rows read a token that is no draft of its request: its rule ended before."""
        drafted_S = self._drafted_S if self.drafter else self.rules.limits.pending_S
        return rows.local_N > drafted_S[rows.slot_N]

    def audit(self, logits_NV: Tensor, rows: Rows, slots: Slots, temperature_N: Tensor) -> None:
        """Judge the drafts; change the logits in place so that vLLM's sampler accepts by rules."""
        rows = rows._replace(input_N=rows.input_N.masked_fill(self.withdrawn(rows), -1))
        judged, greedy_N = judge(logits_NV, rows.draft_N), temperature_N == 0
        beta_N = self.rules.limits.beta_S[rows.slot_N]
        self._judged.append((*judged, greedy_N & (beta_N > 0)))
        if self.rules.relaxed(slots):
            raise_drafts(logits_NV, judged, beta_N, greedy_N)

    def count(
        self, keys: Sequence[str], rows: Rows, slot_R: Tensor, written_R: Tensor, first_N: Tensor
    ) -> None:
        """Count the drafts that were judged since the last call.

        `written_R`: tokens of each request of the batch. `first_N`: of each row, the place in the
        answer that its draft has.
        """
        parts, self._judged = self._judged, []
        draft_N, choice_N, odds_N, audits_N = map(torch.cat, zip(*parts, strict=True))
        row_S = torch.zeros_like(self._drafted_S)
        row_S[slot_R] = torch.arange(len(slot_R), device=slot_R.device)
        row_N = row_S[rows.slot_N]
        there_N, accepted_N = draft_N >= 0, written_R[row_N] - 1
        kept_N = there_N & (rows.local_N < accepted_N)
        audited_N = there_N & audits_N & (rows.local_N <= accepted_N)
        if keys[0].startswith("_"):  # of vLLM's own warm-up
            return
        self.counts.add(keys, Step(row_N, first_N, draft_N, choice_N, odds_N, kept_N, audited_N))
