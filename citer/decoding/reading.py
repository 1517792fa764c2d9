"""Compute the SLM's drafts and their scores from hidden states, on the device.

All columns go to the host in one transfer. They are float64, which holds every token id exactly.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from citer.decoding.policy import Scorer, StepView, always_slm
from citer.models.pair import Pair


@dataclass(frozen=True)
class Drafts:
    """Computes the SLM's next token and its score by each scorer."""

    pair: Pair
    scorers: tuple[Scorer, ...]

    def reading(self, scorers: Collection[Scorer]) -> "Drafts":
        """Read these scorers. Those that have a column keep it; other columns are used again."""
        new = iter([scorer for scorer in scorers if scorer not in self.scorers])
        kept = [own if own in scorers else next(new, always_slm) for own in self.scorers]
        return replace(self, scorers=(*kept, *new))

    def __call__(self, hidden_NH: Tensor, given_N2: Tensor, noise_R6: Tensor) -> Tensor:
        """Return draft_NC in float64: the token, and one score per scorer.

        `given_N2` has the request's seed and the token's position in the answer. `noise_R6` is that
        of `Vocabulary.choices`.
        """
        z_NV, seen_NV = self._logits(hidden_NH, noise_R6)
        view = StepView(hidden_NH, seen_NV, *given_N2.unbind(1))
        # A score that overflowed is NaN. It counts as 0, so that the token is not accepted.
        scores = (scorer(view).nan_to_num(0.0) for scorer in self.scorers)
        columns = [z_NV.argmax(-1), *scores]
        return torch.stack([column.double() for column in columns], 1)

    def _logits(self, hidden_NH: Tensor, noise_R6: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits to choose by, and those for the scorers.

        Scorers see perturbed logits, but the own logits of tokens that top-k or top-p drops: heads
        are trained on distributions in which no token is impossible.
        """
        choices, own_NV = self.pair.vocabulary.choices, self.pair.slm.logits(hidden_NH)
        z_NV = choices(own_NV, noise_R6)
        if not len(noise_R6):
            return z_NV, z_NV
        row_R = noise_R6[:, 0]
        z_RV = z_NV[row_R]
        dropped_RV = z_RV == torch.finfo(z_RV.dtype).min
        seen_RV = torch.where(dropped_RV, choices(own_NV[row_R]), z_RV)
        return z_NV, z_NV.index_copy(0, row_R, seen_RV)
