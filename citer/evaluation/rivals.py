"""Scorers to beat: what needs no training routes by these."""

import math
from functools import partial

import torch
from torch import Tensor

from citer.decoding.policy import Scorer, StepView
from citer.models.router import HIGHEST

_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)  # splitmix64's constants, as signed 64-bit integers
_FIRST = 0xBF58476D1CE4E5B9 - (1 << 64)
_SECOND = 0x94D049BB133111EB - (1 << 64)


def certainty(view: StepView) -> Tensor:
    """score_N = 1 - H / log V, H the entropy of the SLM's next-token distribution."""
    logprob_NV = view.logits_NV.log_softmax(-1)
    entropy_N = -(logprob_NV.exp() * logprob_NV).sum(-1)
    return (1 - entropy_N / math.log(logprob_NV.shape[-1])).clamp(0, HIGHEST).float()


def random(seed: int) -> Scorer:
    """Uniform scores: at τ a share τ of the tokens is the LLM's.

    A score is a hash of the seed, the request and the position, so that neither the batch nor
    the order of arrival changes it.
    """

    return partial(_uniform, seed)


def _uniform(seed: int, view: StepView) -> Tensor:
    counter_N = _mix(view.seed_N ^ seed) + _GOLDEN * view.position_N
    return (_shift(_mix(counter_N), 40).float() * 2.0**-24).clamp(max=HIGHEST)


def _mix(bits_N: Tensor) -> Tensor:
    """The finaliser of splitmix64 (Steele, Lea and Flood, 2014), on int64 that wraps."""
    bits_N = (bits_N ^ _shift(bits_N, 30)) * _FIRST
    bits_N = (bits_N ^ _shift(bits_N, 27)) * _SECOND
    return bits_N ^ _shift(bits_N, 31)


def _shift(bits_N: Tensor, count: int) -> Tensor:
    """Logical right shift; torch's own keeps the sign."""
    return torch.bitwise_right_shift(bits_N, count) & ((1 << (64 - count)) - 1)
