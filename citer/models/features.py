"""The inputs of the router's heads: hidden states, and how confident distributions are."""

from typing import NamedTuple

import torch
from torch import Tensor

from citer.schema import TOP_LOGPROBS

EXTRAS = 2 + TOP_LOGPROBS  # features besides the hidden state
FEATURE = (
    "SLM hidden state after the final norm, entropy in nats, top-1 minus top-2 log-probability, "
    f"{TOP_LOGPROBS} largest log-probabilities"
)


class Confidence(NamedTuple):
    """Entropy (nats), margin and largest log-probabilities of N next-token distributions."""

    entropy_N: Tensor
    margin_N: Tensor
    top_NK: Tensor


def confidence_features(logprob_NV: Tensor) -> Confidence:
    top_NK = logprob_NV.topk(TOP_LOGPROBS).values
    entropy_N = -torch.linalg.vecdot(logprob_NV.exp(), logprob_NV)
    return Confidence(entropy_N, top_NK[:, 0] - top_NK[:, 1], top_NK)


def divergence(logprob_NV: Tensor, other_NV: Tensor) -> Tensor:
    """Return KL(p ‖ q) of N pairs of distributions in nats, from log p and log q."""
    return torch.linalg.vecdot(logprob_NV.exp(), logprob_NV - other_NV)


def features(hidden_NH: Tensor, logits_NV: Tensor) -> Tensor:
    """Return feature_NF, with F = H + `EXTRAS`, in the precision of the logits."""
    entropy_N, margin_N, top_NK = confidence_features(logits_NV.log_softmax(-1))
    columns = [hidden_NH.to(logits_NV.dtype), entropy_N[:, None], margin_N[:, None], top_NK]
    return torch.cat(columns, 1)


def judge_features(
    token_N: Tensor, slm_NH: Tensor, llm_NH: Tensor, q_NV: Tensor, p_NV: Tensor
) -> Tensor:
    """Return feature_NF of the head `judge`, with F = H of the SLM + H of the LLM + `EXTRAS`.

    `token_N` are the SLM's tokens, `slm_NH` and `llm_NH` the hidden states that chose a token here,
    `q_NV` and `p_NV` the log-probabilities of SLM and LLM. The numbers are, in nats: log p of the
    token and of the LLM's choice, the margin and the entropy of p; the same of q; KL(p ‖ q); and
    the logarithm of the token's rank under p.
    """
    p, q = confidence_features(p_NV), confidence_features(q_NV)
    best_N, choice_N = p_NV.max(-1)
    columns = [
        *(_of(token_N, p_NV), best_N, p.margin_N, p.entropy_N),
        *(_of(token_N, q_NV), _of(choice_N, q_NV), q.margin_N, q.entropy_N),
        divergence(p_NV, q_NV),
        rank(token_N, p_NV).log(),
    ]
    hidden = [hidden_NH.to(p_NV.dtype) for hidden_NH in (slm_NH, llm_NH)]
    return torch.cat([*hidden, torch.stack(columns, 1)], 1)


def rank(token_N: Tensor, logit_NV: Tensor) -> Tensor:
    """Return the rank of each token, 1 for the largest logit. Tokens of a tie share the best."""
    larger_NV = logit_NV > logit_NV.gather(1, token_N[:, None])
    return larger_NV.sum(-1).to(logit_NV.dtype) + 1


def _of(token_N: Tensor, logprob_NV: Tensor) -> Tensor:
    return logprob_NV.gather(1, token_N[:, None]).squeeze(1)
