"""The tokens that a pair chooses from: the ids that both models have, with a single EOS."""

from typing import NamedTuple

import torch
from torch import Tensor

from citer.models.noise import perturbed


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
