"""The interface of a rival, and what a rival may learn from: nothing of it is from test."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from torch import Tensor

from citer.config.params import EvaluateParams
from citer.evaluation.sweep import Line, Run
from citer.executors.base import Executor
from citer.models.pair import Pair
from citer.models.router import Head
from citer.models.sampling import Sampler
from citer.rule import Rule


class Alone(NamedTuple):
    """The runs of each model alone on the same questions."""

    slm: Run
    llm: Run


Finish = Callable[[Sequence[Run], Alone], Sequence[Run]]


def as_decoded(runs: Sequence[Run], alone: Alone) -> Sequence[Run]:
    return runs


class Rival(NamedTuple):
    """A line to decode. `finish` makes the rival's runs of the line's runs and the models' own."""

    line: Line
    finish: Finish = as_decoded


class Tokens(NamedTuple):
    """The scored tokens of the preference references: N rows of features, ids and nats.

    `case_N` is the case of the truth table (`citer.storage.schema.CASES`). The log-probabilities
    are those of the reference's token.
    """

    feature_NF: np.ndarray
    problem_N: np.ndarray
    position_N: np.ndarray
    case_N: np.ndarray
    slm_logprob_N: np.ndarray
    llm_logprob_N: np.ndarray


class Learnt(NamedTuple):
    """A head. `thresholds` maps a share of the held-out tokens to the τ below which it lies."""

    head: Head
    thresholds: Mapping[str, float]


Loss = Callable[[Tensor, Tensor], Tensor]  # of logit_B and target_B or target_BK


class Lessons(Protocol):
    """What rivals learn from: the preference questions."""

    @property
    def tokens(self) -> Tokens: ...

    @property
    def alone(self) -> Alone:
        """The runs of each model alone on the preference questions that can be graded.

        Each question is asked once, and only if it has room for an answer. Raises
        NothingToLearnError if there is none.
        """
        ...

    def train(
        self, name: str, rows_N: np.ndarray, target_N: np.ndarray, loss: Loss | None
    ) -> Learnt:
        """Train a head on the token rows `rows_N` (a mask), as a router's is trained.

        Without `loss`, the targets are labels. `target_N` may have more dimensions with one.
        """
        ...


class NothingToLearnError(Exception):
    """The data of a task does not contain what a rival learns from. The message says what."""


@dataclass(frozen=True)
class Setting:
    """What every rival may use. `certainties` are the SLM's, of its own answers on validation.

    Only jobs of `executor` run the models: this process may lack their weights.
    """

    executor: Executor
    pair: Pair
    params: EvaluateParams
    sampler: Sampler
    certainties: Sequence[float]

    @property
    def taus(self) -> list[float]:
        """Thresholds of the SLM's certainty at the target LLM fractions."""
        return quantiles(self.certainties, self.params.fractions)

    def learnt_taus(self, learnt: Learnt) -> list[float]:
        """Return thresholds of a head at the target LLM fractions, from its held-out tokens."""
        shares, taus = zip(*learnt.thresholds.items(), strict=True)
        return np.unique(np.interp(self.params.fractions, [*map(float, shares)], taus)).tolist()


def by_score(taus: Iterable[float], audit: float = 0.0) -> list[Rule]:
    return [Rule("score", tau, audit) for tau in taus]


def quantiles(scores: Sequence[float], fractions: Sequence[float]) -> list[float]:
    """Return thresholds with these shares of the scores below them, midway between two scores."""
    return np.unique(np.quantile(scores, fractions, method="midpoint")).tolist()
