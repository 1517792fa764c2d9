"""Sampling by its definition, in numpy and by transformers, to compare the engine with."""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from citer.models.sampling import Sampling

SETTINGS = [(0.7, 0, 0.9), (1.3, 5, 1.0), (0.2, 40, 0.5), (1.0, 0, 1.0), (0.0, 3, 0.5)]
SAMPLINGS = [Sampling(*each, seed=7 * n - 3) for n, each in enumerate(SETTINGS)]


def warped(logits_NV: Tensor, sampling: Sampling) -> Tensor:
    """Return the logits of transformers' `generate`: logits / T, or -inf for dropped tokens."""
    logits_NV = TemperatureLogitsWarper(sampling.temperature)(None, logits_NV)
    if sampling.top_k:
        logits_NV = TopKLogitsWarper(sampling.top_k)(None, logits_NV)
    return TopPLogitsWarper(sampling.top_p)(None, logits_NV) if sampling.top_p < 1 else logits_NV


def noisy(logits_NV: Tensor, sampling: Sampling | None, position: int) -> Tensor:
    """Return T · (warped logits + Gumbel noise), or logits if there is nothing to sample."""
    if not sampling or not sampling.temperature:
        return logits_NV
    g_V = torch.from_numpy(gumbel(sampling.seed, position, logits_NV.shape[1]))
    return sampling.temperature * (warped(logits_NV, sampling) + g_V)


def gumbel(seed: int, position: int, size: int) -> np.ndarray:
    golden = np.uint64(0x9E3779B97F4A7C15)
    with np.errstate(over="ignore"):
        row = splitmix(splitmix(np.uint64(seed % 2**64)) + golden * np.uint64(position))
        bits = splitmix(row + golden * np.arange(size, dtype=np.uint64)) >> np.uint64(12)
    return -np.log(-np.log((bits + 0.5) / 2**52))


def splitmix(bits: Any) -> Any:
    """Apply the finaliser of splitmix64 to unsigned integers."""
    bits = (bits ^ bits >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ bits >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return bits ^ bits >> np.uint64(31)
