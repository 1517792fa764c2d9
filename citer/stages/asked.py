"""What the stages that evaluate ask, and where they keep the work of an unfinished run."""

import json
from pathlib import Path
from typing import Any, NamedTuple, Self

from citer.config.params import DecodeParams, Params
from citer.data.problems import Problem, read_problems
from citer.data.splits import held_out
from citer.evaluation.study import study_stamp
from citer.models.bundle import folder_identity
from citer.models.folder import PairFolder
from citer.models.room import check_room, with_room
from citer.stages import paths
from citer.stages.folders import finetuned_pair
from citer.storage.code import code_digest
from citer.storage.tables import digest, partial_dir

QUESTIONS = [paths.referenced(split) for split in ("validation", "test")]
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
        named = ((f"{paths.referenced(p.split)}: problem {p.problem_id}", p) for p in both)
        folders = finetuned_pair(params)
        check_room(named, folders, params.decode.max_new_tokens)
        identity = folder_identity(folders, params.pair.dtype)
        stamp = study_stamp(identity, both, params.evaluate, params.decode, params.seed)
        return cls(folders, identity, validation, test, stamp)

    def held_out(self, seed: int, share: float, decode: DecodeParams) -> list[Problem]:
        """Read the held-out questions that have room for an answer. They decide an order only."""
        questions = held_out(read_problems(paths.referenced("preference")), seed, share)
        return with_room(
            questions, self.folders.prompts, self.folders.context - decode.max_new_tokens
        )


def partial_sweeps(
    stage: str,
    params: Params,
    identity: dict[str, Any],
    *inputs: Path | str,
    iteration: int | None = None,
) -> Path:
    """Return the folder for a stage's unfinished sweeps.

    Its name is a digest of everything that the answers depend on: pair, questions, settings, code,
    and `inputs`. Iterations have a home each, as two may run at the same time.
    """
    settings = (
        json.dumps(identity, sort_keys=True),
        params.pair.model_dump_json(),
        params.decode.model_dump_json(),
        str(params.seed),
        params.evaluate.model_dump_json(exclude=JUDGED_LATER),
        code_digest(stage),
    )
    home = stage if iteration is None else f"{stage}/{iteration}"
    return partial_dir(home, digest(*QUESTIONS, *settings, *inputs))
