"""Store the seconds of each stage until they are registered, so that an interruption keeps them."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ruamel.yaml import YAML

from citer.errors import InputError
from citer.storage.tables import digest, read_as, write_json
from flows.dvc_commands import DVC_LOCK, LOCK, locked

KEPT = Path("data/.partial/seconds.json")

Taken = dict[str, tuple[float, str | None]]  # by stage: seconds, digest of its dvc.lock entry


def note(stage: str, seconds: float) -> None:
    """Store the seconds of a stage that has just succeeded. Others may end at the same time."""
    with locked(DVC_LOCK, "DVC", lambda _: None):
        write_json(KEPT, _kept() | {stage: (seconds, _entries().get(stage))})


def complete(stages: Mapping[str, float | None]) -> dict[str, float | None]:
    """Fill in the seconds of stages that ran in an earlier attempt at this retraining."""
    entries = _entries()
    kept = {
        name: seconds
        for name, (seconds, entry) in _kept().items()
        if entry is not None and entry == entries.get(name)
    }
    return {name: kept.get(name) if now is None else now for name, now in stages.items()}


def clear() -> None:
    """Remove the file, so that the next retraining starts empty."""
    KEPT.unlink(missing_ok=True)


def _kept() -> Taken:
    with suppress(InputError):  # a missing or damaged file must not fail a stage
        return read_as(KEPT, Taken)
    return {}


def _entries() -> dict[str, str]:
    """Return, by stage, a digest of its entry in `dvc.lock`, which lists its inputs and outputs."""
    if not LOCK.exists():
        return {}
    stages = YAML(typ="safe").load(LOCK)["stages"]
    return {name: digest(repr(entry)) for name, entry in stages.items()}
