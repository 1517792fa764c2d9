"""The tokens that a pair chooses from, and sampling as a greedy choice (Gumbel-max).

For Gumbel noise g, argmax(logits / T + g) is a sample of softmax(logits / T). The noise is a hash
of seed, position and token. Both models therefore get the same noise, and often choose the same
token (arXiv 2408.07978). Choices and odds are computed from perturbed logits as from logits.
"""

from typing import NamedTuple

import torch
from torch import Tensor

GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)  # splitmix64's constants, as signed 64-bit integers
_FIRST = 0xBF58476D1CE4E5B9 - (1 << 64)
_SECOND = 0x94D049BB133111EB - (1 << 64)


def perturbed(logits_NV: Tensor, noise_N5: Tensor) -> Tensor:
    """Return z_NV = logits + T · g for the kept tokens, in the precision of the logits.

    `noise_N5` has `Sampling.numbers` for each row; rows of temperature 0 stay as they are. Other
    tokens get the lowest finite number.
    """
    seed_N1, position_N1, top_k_N1, *floats = noise_N5.split(1, 1)
    temperature_N1, top_p_N1 = (bits_N1.view(torch.float64) for bits_N1 in floats)
    kept_NV = _kept(logits_NV, temperature_N1, top_k_N1, top_p_N1)
    g_NV = gumbel(seed_N1, position_N1, torch.arange(logits_NV.shape[1], device=logits_NV.device))
    z_NV = (logits_NV + temperature_N1 * g_NV).to(logits_NV.dtype)
    z_NV = torch.where(kept_NV, z_NV, torch.finfo(z_NV.dtype).min)
    return torch.where(temperature_N1 > 0, z_NV, logits_NV)


def gumbel(seed_N1: Tensor, position_N1: Tensor, token_V: Tensor) -> Tensor:
    """Return g_NV in float64: standard Gumbel noise of a seed, a position and a token."""
    row_N1 = mixed(mixed(seed_N1) + GOLDEN * position_N1)
    bits_NV = shifted(mixed(row_N1 + GOLDEN * token_V), 12)
    uniform_NV = (bits_NV.double() + 0.5) * 2.0**-52  # never 0 or 1
    return -(-uniform_NV.log()).log()


def _kept(logits_NV: Tensor, temperature_N1: Tensor, top_k_N1: Tensor, top_p_N1: Tensor) -> Tensor:
    """Return which tokens top-k and then top-p keep, as transformers' logits warpers do.

    A token is kept if the likelier ones have less than `top_p` of the mass of the `top_k` likeliest
    tokens. Tokens with equal logits are kept or dropped together.
    """
    sorted_NV = logits_NV.sort(descending=True).values
    size = logits_NV.shape[1]
    rank_V = torch.arange(size, device=logits_NV.device)
    outside_NV = rank_V >= torch.where(top_k_N1 > 0, top_k_N1, size)
    scaled_NV = sorted_NV.double() / torch.where(temperature_N1 > 0, temperature_N1, 1)
    chance_NV = scaled_NV.masked_fill(outside_NV, -torch.inf).softmax(1)
    before_NV = chance_NV.cumsum(1) - chance_NV
    inside_NV = (before_NV < top_p_N1) | (top_p_N1 >= 1)  # sums of all may round to above 1
    count_N1 = (inside_NV & ~outside_NV).sum(1, keepdim=True).clamp(min=1)
    return logits_NV >= sorted_NV.gather(1, count_N1 - 1)


def mixed(bits: Tensor) -> Tensor:
    """Apply the finaliser of splitmix64 (Steele, Lea and Flood, 2014) to int64 that wraps."""
    bits = (bits ^ shifted(bits, 30)) * _FIRST
    bits = (bits ^ shifted(bits, 27)) * _SECOND
    return bits ^ shifted(bits, 31)


def shifted(bits: Tensor, count: int) -> Tensor:
    """Shift to the right and fill with zeros. The shift of torch keeps the sign."""
    return torch.bitwise_right_shift(bits, count) & ((1 << (64 - count)) - 1)


class Vocabulary(NamedTuple):
    """The ids below `size`. Each of `eos_ids` ends an answer, but only the first one is written."""

    size: int
    eos_ids: tuple[int, ...]

    def choices(self, logits_NV: Tensor, noise_R6: Tensor | None = None) -> Tensor:
        """Restrict logits to these ids, in place, and perturb the rows that have noise, in a copy.

        `noise_R6` has the number of a row, then its `Sampling.numbers`.

        The first EOS gets the largest logit of all EOS ids, the others the lowest finite number.
        A greedy choice then ends an answer exactly if the model's own choice is an EOS id. The
        number is finite because -inf would make the entropy NaN (0 · ∞). The noise comes first, so
        that the first EOS is sampled with the sum of all their probabilities.
        """
        logits_NV = logits_NV[:, : self.size]
        if noise_R6 is not None and len(noise_R6):
            row_R = noise_R6[:, 0]
            z_RV = perturbed(logits_NV[row_R], noise_R6[:, 1:])
            logits_NV = logits_NV.index_copy(0, row_R, z_RV)
        for other in self.eos_ids[1:]:
            end_N, other_N = logits_NV[:, self.eos_ids[0]], logits_NV[:, other]
            torch.maximum(end_N, other_N, out=end_N)
            other_N.fill_(torch.finfo(logits_NV.dtype).min)
        return logits_NV
