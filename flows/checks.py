"""Check arguments and the project's files without Prefect and MLflow, slow to import."""

import re
from pathlib import Path

from pydantic import AnyHttpUrl, TypeAdapter, ValidationError

from citer.config.pair import PairParams
from citer.errors import InputError
from citer.storage import tables

BLOCK = re.compile(r"[\w-]+/[\w-]+")  # TYPE/NAME
# One file in each folder that every retraining writes to.
WRITTEN = ("dvc.lock", ".dvc/tmp/flow.lock", "data/code.json", "mlruns/.lock")
TARGET = "expected http://… or https://…, or TYPE/NAME of a notification block"


def check_target(target: str) -> None:
    """Raise InputError if `target` is neither the address of a webhook nor a block's TYPE/NAME."""
    if BLOCK.fullmatch(target):
        return
    try:
        TypeAdapter(AnyHttpUrl).validate_python(target)
    except ValidationError:
        raise InputError(f"{target}: {TARGET}") from None


def check_project(pair: PairParams) -> None:
    """Raise InputError with the first file that cannot be written, or the first missing model."""
    for name in WRITTEN:
        tables.check_target(Path(name))
    for name, folder in (("slm", pair.slm), ("llm", pair.llm)):
        if not Path(folder, "config.json").is_file():
            expected = "no config.json, expected a Hugging Face model folder"
            raise InputError(f"params.yaml: pair.{name}: {folder}: {expected}")
