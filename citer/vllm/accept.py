"""Decide which of the SLM's drafts stand, given the LLM's logits at their positions.

Each row of logits is one draft's position, as vLLM samples from it: after penalties, masks,
temperature, top-k and top-p. A logit of -inf marks a token that the request's settings forbid.
"""

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import NamedTuple

import torch
from torch import Tensor

from citer.models.router import HIGHEST

CERTAIN = 40.0  # log-odds: the probability rounds to 1 in float32


class Judged(NamedTuple):
    """N drafts, as the LLM judges them.

    draft_N: a negative one is none: vLLM has withdrawn it, and it never stands
    odds_N: p(draft) / p(choice); a draft that ties with the choice is below 1, so that β = 1
        rejects it
    logprob_N: log p(draft)
    total_N: logsumexp of the row
    """

    draft_N: Tensor
    choice_N: Tensor
    odds_N: Tensor
    logprob_N: Tensor
    total_N: Tensor


def judge(logits_NV: Tensor, draft_N: Tensor) -> Judged:
    best_N, choice_N = logits_NV.max(-1)
    own_N = own_logits(logits_NV, draft_N).masked_fill(draft_N < 0, -torch.inf)
    odds_N = (own_N - best_N).exp()
    odds_N = torch.where(draft_N == choice_N, odds_N, odds_N.clamp(max=HIGHEST))
    total_N = logits_NV.logsumexp(-1)
    return Judged(draft_N, choice_N, odds_N, own_N - total_N, total_N)


def own_logits(logits_NV: Tensor, draft_N: Tensor) -> Tensor:
    """Return the logit of each draft; for none, that of id 0."""
    return logits_NV.gather(1, draft_N[:, None].clamp(min=0)).squeeze(1)


def set_logits(logits_NV: Tensor, draft_N: Tensor, own_N: Tensor) -> None:
    """Set what `own_logits` returns."""
    logits_NV.scatter_(1, draft_N[:, None].clamp(min=0), own_N[:, None])


def accept(judged: Judged, beta_N: Tensor, greedy_N: Tensor) -> Tensor:
    """Return chance_N, the probability with which each draft stands.

    Greedy: 1 if p(draft) ≥ β · p(choice), else 0. Sampled: min(1, p(draft) / β), so that the
    distribution of each token is at most 1 - β in total variation from the LLM's. For a draft that
    does not stand, vLLM samples from the LLM's other tokens. At β = 1 both are vLLM's own
    rejection sampling of a draft without probabilities. At 0 every draft that is allowed stands.
    """
    sampled_N = (judged.logprob_N.exp() / beta_N).clamp(max=1)
    sampled_N = sampled_N.masked_fill(beta_N == 0, 1)  # also where p(draft) rounds to 0
    chance_N = torch.where(greedy_N, (judged.odds_N >= beta_N).float(), sampled_N)
    return torch.where(judged.logprob_N.isneginf(), 0, chance_N)


def raise_drafts(logits_NV: Tensor, judged: Judged, beta_N: Tensor, greedy_N: Tensor) -> None:
    """Change the drafts' logits, in place, so that vLLM's own sampler accepts as `accept` says.

    Rows whose draft does not stand, and sampled rows with β = 1, stay as they are.
    """
    chance_N = accept(judged, beta_N, greedy_N)
    raised_N = torch.where(greedy_N, chance_N == 1, (beta_N < 1) & (chance_N > 0))
    own_N = own_logits(logits_NV, judged.draft_N)
    others_N = judged.total_N + torch.log1p(-judged.logprob_N.exp())
    new_N = others_N + chance_N.logit().clamp(max=CERTAIN)  # gives the draft probability `chance_N`
    new_N = torch.where(chance_N < 1, new_N, judged.total_N + CERTAIN).to(own_N.dtype)
    set_logits(logits_NV, judged.draft_N, torch.where(raised_N, new_N, own_N))


class JudgedRow(NamedTuple):
    """The drafts of one row, the LLM's choices at their places and the odds (see `Judged`)."""

    drafts: list[int]
    choices: list[int]
    odds: list[float]

    def without_withdrawn(self) -> "JudgedRow":
        """Return the row up to the first draft that vLLM has withdrawn."""
        count = next((n for n, draft in enumerate(self.drafts) if draft < 0), len(self.drafts))
        return JudgedRow(self.drafts[:count], self.choices[:count], self.odds[:count])


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
            return repeat(JudgedRow([], [], []))
        parts = (self._judged.draft_N, self._judged.choice_N, self._judged.odds_N)
        split = (part.cpu().split(list(self._counts)) for part in parts)
        rows = zip(*split, strict=True)
        return (JudgedRow(*(p.tolist() for p in row)).without_withdrawn() for row in rows)


def _per_draft(values: Sequence[float], counts: Sequence[int]) -> Tensor:
    """Repeat the value of each row for each of its drafts."""
    return torch.tensor(values[: len(counts)]).repeat_interleave(torch.tensor(counts))
