"""Where stages that train keep the work of an unfinished run."""

from collections.abc import Mapping
from pathlib import Path

from citer.config.params import Params
from citer.models.device import resolve_device
from citer.storage.code import code_digest
from citer.storage.tables import digest, partial_dir


def partial_training(stage: str, params: Params, data: Mapping[str, str]) -> Path:
    """Return the folder for a stage's unfinished training on `data`, which are digests."""
    device = str(resolve_device(params.pair.device))  # the state of its generator is kept, too
    settings = params.train.model_dump_json(), device, code_digest(stage)
    return partial_dir(stage, digest(*data.values(), *settings))
