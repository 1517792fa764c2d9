"""Decide which drafts stand, given the LLM's logits at their positions.

Each row of logits is one draft's position, as vLLM samples from it: after penalties, masks,
temperature, top-k and top-p. A logit of -inf marks a token that the request's settings forbid.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from citer.models.router import HIGHEST

CERTAIN = 40.0  # log-odds: the probability rounds to 1 in float32


class Judged(NamedTuple):
    """N drafts, as the LLM judges them."""

    draft_N: Tensor  # a negative one is none, and never stands
    choice_N: Tensor  # the LLM's own token
    odds_N: Tensor  # p(draft) / p(choice); below 1 if both tie, so that β = 1 rejects the draft


def judge(logits_NV: Tensor, draft_N: Tensor) -> Judged:
    best_N, choice_N = logits_NV.max(-1)
    own_N = logits_NV.gather(1, draft_N[:, None].clamp(min=0)).squeeze(1)
    odds_N = (own_N - best_N).float().exp().masked_fill(draft_N < 0, 0)
    odds_N = torch.where(draft_N == choice_N, odds_N, odds_N.clamp(max=HIGHEST))
    return Judged(draft_N, choice_N, odds_N)


def stand(logprob_N: Tensor, judged: Judged, beta_N: Tensor, greedy_N: Tensor) -> Tensor:
    """Return chance_N, the probability with which each draft, of this log p(draft), stands.

    Greedy: 1 if p(draft) ≥ β · p(choice), else 0. Sampled: min(1, p(draft) / β), so that the
    distribution of each token is at most 1 - β in total variation from the LLM's. For a draft that
    does not stand, vLLM samples from the LLM's other tokens. At β = 1 both are vLLM's own
    rejection sampling of a draft without probabilities. At 0 every draft that is allowed stands.
    """
    sampled_N = (logprob_N.exp() / beta_N).clamp(max=1)
    sampled_N = sampled_N.masked_fill(beta_N == 0, 1)  # also where p(draft) rounds to 0
    chance_N = torch.where(greedy_N, (judged.odds_N >= beta_N).float(), sampled_N)
    return torch.where(logprob_N.isneginf() | (judged.draft_N < 0), 0, chance_N)


def raise_drafts(logits_NV: Tensor, judged: Judged, beta_N: Tensor, greedy_N: Tensor) -> None:
    """Change the drafts' logits, in place, so that vLLM's own sampler accepts as `stand` says.

    Rows whose draft does not stand, and sampled rows with β = 1, stay as they are.
    """
    index_N1 = judged.draft_N[:, None].clamp(min=0)
    own_N, total_N = logits_NV.gather(1, index_N1).squeeze(1), logits_NV.logsumexp(-1)
    logprob_N = own_N - total_N
    chance_N = stand(logprob_N, judged, beta_N, greedy_N)
    raised_N = torch.where(greedy_N, chance_N == 1, (beta_N < 1) & (chance_N > 0))
    others_N = total_N + torch.log1p(-logprob_N.exp())
    new_N = others_N + chance_N.logit().clamp(max=CERTAIN)  # gives the draft probability `chance_N`
    new_N = torch.where(chance_N < 1, new_N, total_N + CERTAIN)
    logits_NV.scatter_(1, index_N1, torch.where(raised_N, new_N.to(own_N.dtype), own_N)[:, None])
