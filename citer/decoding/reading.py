"""What is read of the models' states, on their device: numbers that go to the host together.

float64 holds every token id exactly.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from citer.decoding.policy import Scorer, StepView
from citer.models.pair import Pair


@dataclass(frozen=True)
class Drafts:
    """Of the SLM's states: its next token, and how safely that may stand to each scorer."""

    pair: Pair
    scorers: tuple[Scorer, ...]

    def __call__(self, hidden_NH: Tensor, given_N2: Tensor) -> Tensor:
        """draft_NC, a score a column; given are each request's seed and the token's position."""
        logits_NV = self.pair.vocabulary.choices(self.pair.slm.logits(hidden_NH))
        view = StepView(hidden_NH, logits_NV, *given_N2.unbind(1))
        # What overflowed has no score, and is not to stand.
        scores = (scorer(view).nan_to_num(0.0) for scorer in self.scorers)
        columns = [logits_NV.argmax(-1), *scores]
        return torch.stack([column.double() for column in columns], 1)


@dataclass(frozen=True)
class Verdicts:
    """Of the LLM's states: its choice, and the odds against it of a token given."""

    pair: Pair

    def __call__(self, hidden_MH: Tensor, given_M1: Tensor) -> Tensor:
        """verdict_M2"""
        logits_MV = self.pair.vocabulary.choices(self.pair.llm.logits(hidden_MH))
        best_M, choice_M = logits_MV.max(-1)
        odds_M = (logits_MV.gather(1, given_M1).squeeze(1) - best_M).exp()
        return torch.stack([choice_M.double(), odds_M.double()], 1)
