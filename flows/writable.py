"""Check, before a retraining does anything, that it can write to the project."""

from pathlib import Path

from citer.storage.tables import check_target

# One file in each folder that every retraining writes to.
WRITTEN = ("dvc.lock", ".dvc/tmp/flow.lock", "data/code.json", "mlruns/.lock")


def check_writable() -> None:
    """Raise InputError with the first file that cannot be written."""
    for name in WRITTEN:
        check_target(Path(name))
