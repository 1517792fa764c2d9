"""Where `rivals` and `evaluate` keep the results of an unfinished run."""

import json
from pathlib import Path
from typing import Any

from citer.closure import code_digest
from citer.config import Params
from citer.io import digest, partial_dir
from citer.stages import paths

JUDGED_LATER = {"llm_floor", "epsilon", "delta", "batches"}  # settings that change no answer


def partial_sweeps(
    stage: str, params: Params, identity: dict[str, Any], *inputs: Path | str
) -> Path:
    """Return the folder for a stage's unfinished sweeps.

    Its name is a digest of everything that the answers depend on: the pair's `identity`, questions,
    settings, code, and `inputs`.
    """
    questions = (paths.problems(split) for split in ("validation", "test"))
    settings = (
        json.dumps(identity, sort_keys=True),
        params.pair.model_dump_json(),
        params.evaluate.model_dump_json(exclude=JUDGED_LATER),
        code_digest(stage),
    )
    return partial_dir(stage, digest(*questions, *settings, *inputs))
