"""What the stages that evaluate ask, and where they keep the work of an unfinished run."""

import json
from pathlib import Path
from typing import Any, NamedTuple, Self

from citer.config.params import Params
from citer.data.problems import Problem, read_problems
from citer.data.splits import held_out
from citer.errors import InputError
from citer.evaluation.study import Study, study_stamp
from citer.models.folder import PairFolder
from citer.models.outlined import open_pair
from citer.models.room import check_room, with_room
from citer.stages import paths
from citer.stages.folders import finetuned_pair
from citer.storage.code import code_digest
from citer.storage.tables import digest, partial_dir

QUESTIONS = [paths.referenced(split) for split in ("validation", "test")]
DECIDING = {"pair", "decode", "seed", "evaluate", "serve"}  # sections on which answers depend
JUDGED_LATER = {"llm_floor", "epsilon", "delta", "batches"}  # settings that change no answer


class Asked(NamedTuple):
    """The questions of validation and test, and the pair that answers them, not yet loaded."""

    folders: PairFolder
    identity: dict[str, Any]
    validation: list[Problem]
    test: list[Problem]
    stamp: dict[str, Any]

    @classmethod
    def read(cls, params: Params) -> Self:
        """Raises InputError if a question has no room, or if they are not all of one measure."""
        validation, test = map(read_problems, QUESTIONS)
        both = [*validation, *test]
        folders = finetuned_pair(params)
        check_room(paths.named(both, paths.referenced), folders, params.decode.max_new_tokens)
        identity = folders.identity(params.pair.dtype)
        stamp = study_stamp(identity, both, params.evaluate, params.decode, params.seed)
        return cls(folders, identity, validation, test, stamp)

    def study(
        self, stage: str, params: Params, *inputs: Path | str, iteration: int | None = None
    ) -> Study:
        """Open the pair, and return the study of a stage with these `inputs`.

        The name of its folder for unfinished sweeps is a digest of all that the answers depend on.
        Iterations have a home each, as two may run at the same time.
        """
        holdout = self._held_out(params)
        settings = (
            json.dumps(self.identity, sort_keys=True),
            params.model_dump_json(include=DECIDING, exclude={"evaluate": JUDGED_LATER}),
            code_digest(stage),
            *(problem.problem_id for problem in holdout),
        )
        home = stage if iteration is None else f"{stage}/{iteration}"
        pair, executor = open_pair(self.folders, params.pair, params.workers)
        return Study(
            executor,
            pair,
            self.validation,
            self.test,
            params.evaluate,
            params.decode,
            params.seed,
            params.serve,
            partial_dir(home, digest(*QUESTIONS, *settings, *inputs)),
            holdout,
        )

    def _held_out(self, params: Params) -> list[Problem]:
        """Read the held-out questions that have room for an answer.

        Raises InputError if there is none.
        """
        preference = paths.referenced("preference")
        questions = held_out(read_problems(preference), params.seed, params.train.holdout)
        room = self.folders.context - params.decode.max_new_tokens
        if not (fitting := with_room(questions, self.folders.prompts, room)):
            raise InputError(
                f"{preference}: none of the {len(questions)} held-out questions (train.holdout) "
                "has room for an answer; expected at least one"
            )
        return fitting
