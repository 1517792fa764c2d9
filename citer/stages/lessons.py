"""What the bound that learns learns from: the preference questions, and the SLM's features."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from citer.data.problems import Problem, first_id, read_problems
from citer.data.tokens import read_features, read_identity, read_tokens
from citer.evaluation.bounds import LEARNS
from citer.evaluation.bounds.bound import Alone, NothingToLearnError, Prompts
from citer.evaluation.study import Study
from citer.models.bundle import check_identity
from citer.models.room import with_room
from citer.stages import paths
from citer.storage.tables import digest


def lesson_inputs(bounds: Iterable[str], identity: dict[str, Any]) -> Iterator[str]:
    """Yield digests of what the bounds learn from, if one of them learns.

    Raises InputError if the tokens were scored by another pair than that of this `identity`.
    """
    if LEARNS in bounds:
        scored_by = read_identity(paths.SLM_TOKENS, paths.LLM_TOKENS)
        check_identity(scored_by, identity, paths.SLM_TOKENS)
        yield from map(digest, (paths.referenced("preference"), paths.SLM_TOKENS))


@dataclass(frozen=True)
class Preference:
    """The lessons (`citer.evaluation.bounds.bound.Lessons`) of a study, read when needed."""

    study: Study

    @cached_property
    def _problems(self) -> dict[str, Problem]:
        return {each.problem_id: each for each in read_problems(paths.referenced("preference"))}

    @cached_property
    def prompts(self) -> Prompts:
        examples = self.study.pair.prompts.encode_all(self._problems.values())
        tokens = read_tokens(paths.SLM_TOKENS, paths.LLM_TOKENS, examples)
        first = tokens.take(np.flatnonzero(tokens["position"].to_numpy() == 0))
        return Prompts(read_features(paths.SLM_TOKENS, first), first["problem_id"].to_numpy())

    @cached_property
    def alone(self) -> Alone:
        pair, limit = self.study.pair, self.study.decode.max_new_tokens
        first: dict[str, Problem] = {}
        for key, problem in self._problems.items():
            if problem.gradable:
                first.setdefault(first_id(key), problem)
        asked = with_room(first.values(), pair.prompts, pair.context - limit)
        if not asked:
            raise NothingToLearnError(
                "no preference question has an answer to grade against, and room for one"
            )
        return self.study.alone_on(asked)
