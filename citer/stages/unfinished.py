"""Where stages that evaluate or train keep the work of an unfinished run."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from citer.config.params import Params
from citer.models.device import resolve_device
from citer.stages import paths
from citer.storage.code import code_digest
from citer.storage.tables import digest, partial_dir

JUDGED_LATER = {"llm_floor", "epsilon", "delta", "batches"}  # settings that change no answer


def partial_sweeps(
    stage: str,
    params: Params,
    identity: dict[str, Any],
    *inputs: Path | str,
    iteration: int | None = None,
) -> Path:
    """Return the folder for a stage's unfinished sweeps.

    Its name is a digest of everything that the answers depend on: the pair's `identity`, questions,
    settings, code, and `inputs`. Iterations have a home each, as two may run at the same time.
    """
    questions = (paths.referenced(split) for split in ("validation", "test"))
    settings = (
        json.dumps(identity, sort_keys=True),
        params.pair.model_dump_json(),
        params.evaluate.model_dump_json(exclude=JUDGED_LATER),
        code_digest(stage),
    )
    home = stage if iteration is None else f"{stage}/{iteration}"
    return partial_dir(home, digest(*questions, *settings, *inputs))


def partial_training(stage: str, params: Params, data: Mapping[str, str]) -> Path:
    """Return the folder for a stage's unfinished training on `data`, which are digests."""
    device = str(resolve_device(params.pair.device))  # the state of its generator is kept, too
    settings = params.train.model_dump_json(), device, code_digest(stage)
    return partial_dir(stage, digest(*data.values(), *settings))
