"""The inputs of the router's heads: hidden states, and how confident distributions are."""

from typing import NamedTuple

import torch
from torch import Tensor

from citer.storage.schema import TOP_LOGPROBS

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


def judge_features(slm_NF: Tensor, llm_NH: Tensor, logprob_NV: Tensor, token_N: Tensor) -> Tensor:
    """Return feature_NF of the head `judge`: the SLM's `features`, then what the LLM thinks.

    That is the hidden state from which the LLM chose its token, and in nats: the log-probability of
    the SLM's token and of the LLM's choice, the margin, the entropy, and the logarithm of the rank
    of the SLM's token. F = F of the SLM + H of the LLM + 5.
    """
    llm = confidence_features(logprob_NV)
    columns = [
        logprob_NV.gather(1, token_N[:, None]).squeeze(1),
        *(llm.top_NK[:, 0], llm.margin_N, llm.entropy_N),
        rank(token_N, logprob_NV).log(),
    ]
    states = [state_NH.to(logprob_NV.dtype) for state_NH in (slm_NF, llm_NH)]
    return torch.cat([*states, torch.stack(columns, 1)], 1)


def rank(token_N: Tensor, logit_NV: Tensor) -> Tensor:
    """Return the rank of each token, 1 for the largest logit. Tokens of a tie share the best."""
    larger_NV = logit_NV > logit_NV.gather(1, token_N[:, None])
    return larger_NV.sum(-1).to(logit_NV.dtype) + 1
