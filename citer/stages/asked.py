"""What the stages that evaluate ask, and where they keep the work of an unfinished run."""

import json
from pathlib import Path
from typing import Any, NamedTuple, Self

from citer.config.params import Params
from citer.data.problems import Problem, read_problems
from citer.data.splits import held_out
from citer.evaluation.measure import Conditions, Measure
from citer.evaluation.study import Study, study_stamp
from citer.models.folder import PairFolder
from citer.models.outlined import open_pair
from citer.models.room import check_room
from citer.stages import paths
from citer.stages.folders import finetuned_pair
from citer.storage.code import code_digest
from citer.storage.tables import digest, partial_dir

QUESTIONS = [paths.referenced(split) for split in ("validation", "test", "preference")]
DECIDING = {"pair", "decode", "seed", "evaluate", "serve"}  # sections on which answers depend
JUDGED_LATER = {"llm_floor", "epsilon", "delta", "batches"}  # settings that change no answer


class Asked(NamedTuple):
    """All questions of a study, and the pair that answers them, not yet loaded."""

    folders: PairFolder
    identity: dict[str, Any]
    validation: list[Problem]
    test: list[Problem]
    holdout: list[Problem]
    measure: Measure
    stamp: dict[str, Any]

    @classmethod
    def read(cls, params: Params) -> Self:
        """Raises InputError if a question has no room, or if they are not all of one measure."""
        validation, test, preference = map(read_problems, QUESTIONS)
        both, limit = [*validation, *test], params.decode.max_new_tokens
        folders = finetuned_pair(params)
        check_room(paths.named([*both, *preference], paths.referenced), folders, limit)
        identity = folders.identity(params.pair.dtype)
        conditions = Conditions.of(both, params.evaluate.sampling, identity)
        stamp = study_stamp(identity, both, conditions, params)
        holdout = held_out(preference, params.seed, params.train.holdout)
        return cls(folders, identity, validation, test, holdout, conditions.measure, stamp)

    def study(
        self, stage: str, params: Params, *inputs: Path | str, iteration: int | None = None
    ) -> Study:
        """Open the pair, and return the study of a stage with these `inputs`.

        The name of its folder for unfinished sweeps is a digest of all that the answers depend on.
        Iterations have a home each, as two may run at the same time.
        """
        settings = (
            json.dumps(self.identity, sort_keys=True),
            params.model_dump_json(include=DECIDING, exclude={"evaluate": JUDGED_LATER}),
            code_digest(stage),
            *(problem.problem_id for problem in self.holdout),
        )
        home = stage if iteration is None else f"{stage}/{iteration}"
        partial = partial_dir(home, digest(*QUESTIONS[:2], *settings, *inputs))
        pair, executor = open_pair(self.folders, params.pair, params.workers)
        questions = self.validation, self.test, self.holdout
        return Study(executor, pair, *questions, self.measure, params, partial)
