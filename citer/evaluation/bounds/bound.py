"""The interface of a bound, and what a bound may learn from: nothing of it is from test."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from citer.config.params import EvaluateParams
from citer.evaluation.sweep import Line, Run
from citer.executors.base import Executor
from citer.models.pair import Pair
from citer.models.sampling import Sampler


class Alone(NamedTuple):
    """The runs of each model alone on the same questions."""

    slm: Run
    llm: Run


Finish = Callable[[Sequence[Run], Alone], Sequence[Run]]


def as_decoded(runs: Sequence[Run], alone: Alone) -> Sequence[Run]:
    return runs


class Bound(NamedTuple):
    """A line to decode. `finish` makes the bound's runs of the line's runs and the models' own."""

    line: Line
    finish: Finish = as_decoded


class Prompts(NamedTuple):
    """The SLM's features at the end of Q prompts, with the ids of their problems."""

    feature_QF: np.ndarray
    problem_Q: np.ndarray


class Lessons(Protocol):
    """What a bound learns from: the preference questions."""

    @property
    def prompts(self) -> Prompts: ...

    @property
    def alone(self) -> Alone:
        """The runs of each model alone on the preference questions that can be graded.

        Each question is asked once, and only if it has room for an answer. Raises
        NothingToLearnError if there is none.
        """
        ...


class NothingToLearnError(Exception):
    """The data of a task does not contain what a bound learns from. The message says what."""


@dataclass(frozen=True)
class Setting:
    """What every bound may use.

    Only jobs of `executor` run the models: this process may lack their weights.
    """

    executor: Executor
    pair: Pair
    params: EvaluateParams
    sampler: Sampler
