"""The tokens that a pair chooses from: the ids that both models have, with a single EOS."""

from typing import NamedTuple

import torch
from torch import Tensor

from citer.models.noise import perturbed


class Vocabulary(NamedTuple):
    """The ids below `size`. Each of `eos_ids` ends an answer, but only the first one is written."""

    size: int
    eos_ids: tuple[int, ...]

    def choices(self, logits_NV: Tensor, noise_N5: Tensor | None = None) -> Tensor:
        """Restrict logits to these ids, in place, and perturb them if there is noise.

        The first EOS gets the largest logit of all EOS ids, the others the lowest finite number.
        A greedy choice then ends an answer exactly if the model's own choice is an EOS id. The
        number is finite because -inf would make the entropy NaN (0 · ∞). The noise comes first, so
        that the first EOS is sampled with the sum of all their probabilities.
        """
        logits_NV = logits_NV[:, : self.size]
        if noise_N5 is not None:
            logits_NV = perturbed(logits_NV, noise_N5)
        for other in self.eos_ids[1:]:
            end_N, other_N = logits_NV[:, self.eos_ids[0]], logits_NV[:, other]
            torch.maximum(end_N, other_N, out=end_N)
            other_N.fill_(torch.finfo(logits_NV.dtype).min)
        return logits_NV
