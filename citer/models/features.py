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


def features(hidden_NH: Tensor, logits_NV: Tensor) -> Tensor:
    """Return feature_NF, with F = H + `EXTRAS`, in the precision of the logits."""
    entropy_N, margin_N, top_NK = confidence_features(logits_NV.log_softmax(-1))
    columns = [hidden_NH.to(logits_NV.dtype), entropy_N[:, None], margin_N[:, None], top_NK]
    return torch.cat(columns, 1)
