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
    samples: bool = False  # whether any request does

    def reading(self, scorers: Collection[Scorer]) -> "Drafts":
        """Read these scorers. Those that have a column keep it; other columns are used again."""
        new = iter([scorer for scorer in scorers if scorer not in self.scorers])
        kept = [own if own in scorers else next(new, always_slm) for own in self.scorers]
        return replace(self, scorers=(*kept, *new))

    def __call__(self, hidden_NH: Tensor, given_NK: Tensor) -> Tensor:
        """Return draft_NC in float64: the token, then one score per scorer.

        `given_NK` has the request's seed and the token's position in the answer, and then
        `Sampling.numbers` if any request samples.
        """
        noise_N5 = given_NK[:, 2:] if self.samples else None
        logits_NV = self.pair.vocabulary.choices(self.pair.slm.logits(hidden_NH), noise_N5)
        view = StepView(hidden_NH, logits_NV, *given_NK[:, :2].unbind(1))
        # A score that overflowed is NaN. It counts as 0, so that the token is not accepted.
        scores = (scorer(view).nan_to_num(0.0) for scorer in self.scorers)
        columns = [logits_NV.argmax(-1), *scores]
        return torch.stack([column.double() for column in columns], 1)
