"""Decide which of the SLM's drafts stand, given the LLM's logits at their positions.

Each row of logits is one draft's position, as vLLM samples from it: after penalties, masks,
temperature, top-k and top-p. A logit of -inf marks a token that the request's settings forbid.
"""

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


def logits_for(judged: Judged, chance_N: Tensor) -> Tensor:
    """Return the logit of each draft that gives it probability `chance_N` in its row."""
    others_N = judged.total_N + torch.log1p(-judged.logprob_N.exp())
    below_one_N = others_N + chance_N.logit().clamp(max=CERTAIN)
    return torch.where(chance_N < 1, below_one_N, judged.total_N + CERTAIN)


def raise_drafts(logits_NV: Tensor, judged: Judged, beta_N: Tensor, greedy_N: Tensor) -> None:
    """Change the drafts' logits, in place, so that vLLM's own sampler accepts as `accept` says.

    Rows whose draft does not stand, and sampled rows with β = 1, stay as they are.
    """
    chance_N = accept(judged, beta_N, greedy_N)
    raised_N = torch.where(greedy_N, chance_N == 1, (beta_N < 1) & (chance_N > 0))
    own_N = own_logits(logits_NV, judged.draft_N)
    new_N = logits_for(judged, chance_N).to(own_N.dtype)
    set_logits(logits_NV, judged.draft_N, torch.where(raised_N, new_N, own_N))
