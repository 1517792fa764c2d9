"""The tokens that a pair chooses from: ids that both models have, and one end of an answer."""

from typing import NamedTuple

import torch
from torch import Tensor


class Vocabulary(NamedTuple):
    """The ids below `size`. All `eos_ids` mean the end; the first of them is written."""

    size: int
    eos_ids: tuple[int, ...]

    def choices(self, logits_NV: Tensor) -> Tensor:
        """The logits of these ids, in place.

        The first EOS takes the largest logit of all EOS, the others the lowest number, so that a
        greedy choice ends an answer exactly where the model would. Infinity would make the entropy
        no number (0 · ∞).
        """
        logits_NV = logits_NV[:, : self.size]
        for other in self.eos_ids[1:]:
            end_N, other_N = logits_NV[:, self.eos_ids[0]], logits_NV[:, other]
            torch.maximum(end_N, other_N, out=end_N)
            other_N.fill_(torch.finfo(logits_NV.dtype).min)
        return logits_NV
