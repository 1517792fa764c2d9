"""The audit of one step: the drafts of the whole batch, as the LLM judges them."""

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import NamedTuple

import torch
from torch import Tensor

from citer.vllm.accept import Judged, judge, raise_drafts


class JudgedRow(NamedTuple):
    """The drafts of one row, the LLM's choices at their places and the odds (see `Judged`)."""

    drafts: list[int]
    choices: list[int]
    odds: list[float]

    def without_withdrawn(self) -> "JudgedRow":
        """Return the row up to the first draft that vLLM has withdrawn."""
        count = next((n for n, draft in enumerate(self.drafts) if draft < 0), len(self.drafts))
        return JudgedRow(self.drafts[:count], self.choices[:count], self.odds[:count])


UNJUDGED = JudgedRow([], [], [])


class Audit:
    """β of each row of vLLM's batch; after `apply`, also the drafts as the LLM judges them."""

    def __init__(self, betas: Sequence[float]) -> None:
        self._betas = betas
        self._counts: Sequence[int] = ()
        self._judged: Judged | None = None

    def apply(
        self,
        logits_NV: Tensor,
        draft_N: Tensor,
        counts: Sequence[int],
        temperatures: Sequence[float],
    ) -> None:
        """Judge the drafts, and change the logits of those that stand (see `raise_drafts`).

        `counts` and `temperatures` have a number for each row of the batch.
        """
        self._counts = counts
        self._judged = judge(logits_NV, draft_N)
        beta_N = _per_draft(self._betas, counts).to(logits_NV.device)
        temperature_N = _per_draft(temperatures, counts).to(logits_NV.device)
        raise_drafts(logits_NV, self._judged, beta_N, temperature_N == 0)

    def rows(self) -> Iterator[JudgedRow]:
        """Yield the rows of the batch. Endless and without drafts, if there were none."""
        if self._judged is None:
            return repeat(UNJUDGED)
        parts = (self._judged.draft_N, self._judged.choice_N, self._judged.odds_N)
        split = (part.cpu().split(list(self._counts)) for part in parts)
        rows = zip(*split, strict=True)
        return (JudgedRow(*(p.tolist() for p in row)).without_withdrawn() for row in rows)


def _per_draft(values: Sequence[float], counts: Sequence[int]) -> Tensor:
    """Repeat the value of each row for each of its drafts."""
    return torch.tensor(values[: len(counts)]).repeat_interleave(torch.tensor(counts))
