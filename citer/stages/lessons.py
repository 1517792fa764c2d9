"""What rivals learn from: the scored tokens of the preference references, and its questions."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from citer.config.params import TrainParams
from citer.data.problems import Problem, first_id, read_problems
from citer.data.tokens import read_features, read_identity, read_tokens
from citer.evaluation.rivals import LEARNERS
from citer.evaluation.rivals.rival import Alone, Learnt, Loss, NothingToLearnError, Tokens
from citer.evaluation.study import Study
from citer.labelling.preference import token_cases
from citer.models.bundle import check_identity
from citer.models.room import with_room
from citer.stages import paths
from citer.storage.tables import digest
from citer.training.router import train_head


def lesson_inputs(
    rivals: Iterable[str], params: TrainParams, seed: int, identity: dict[str, Any]
) -> Iterator[str]:
    """Yield digests of what the rivals learn from, if one of them learns.

    Raises InputError if the tokens were scored by another pair than that of this `identity`.
    """
    if set(rivals) & set(LEARNERS):
        scored_by = read_identity(paths.SLM_TOKENS, paths.LLM_TOKENS)
        check_identity(scored_by, identity, paths.SLM_TOKENS)
        files = (paths.referenced("preference"), paths.SLM_TOKENS, paths.LLM_TOKENS)
        yield from (*map(digest, files), params.model_dump_json(), str(seed))


@dataclass(frozen=True)
class Preference:
    """The lessons (`citer.evaluation.rivals.Lessons`) of a study. Files are read when needed."""

    params: TrainParams
    study: Study

    @cached_property
    def _problems(self) -> dict[str, Problem]:
        return {each.problem_id: each for each in read_problems(paths.referenced("preference"))}

    @cached_property
    def tokens(self) -> Tokens:
        examples = self.study.pair.prompts.encode_all(self._problems.values())
        rows = read_tokens(paths.SLM_TOKENS, paths.LLM_TOKENS, examples)
        columns = ("problem_id", "position", "slm_logprob_gt", "llm_logprob_gt")
        problem_N, position_N, *logprobs = (rows[name].to_numpy() for name in columns)
        feature_NF = read_features(paths.SLM_TOKENS, rows)
        return Tokens(
            feature_NF, problem_N, position_N, token_cases(self._problems, rows), *logprobs
        )

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

    def train(
        self, name: str, rows_N: np.ndarray, target_N: np.ndarray, loss: Loss | None
    ) -> Learnt:
        data = self.tokens.feature_NF[rows_N], target_N, self.tokens.problem_N[rows_N]
        settings = self.params, self.study.seed, self.study.pair.slm.device
        trained = train_head(*data, *settings, loss=loss)
        return Learnt(trained.head, trained.thresholds)
