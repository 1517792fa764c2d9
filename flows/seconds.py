"""How long stages took, kept until their retraining is registered: it may be cut short before."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ruamel.yaml import YAML

from citer.errors import InputError
from citer.io import digest, read_as, write_json
from flows.dvc_commands import LOCK

KEPT = Path("data/.partial/seconds.json")

Taken = dict[str, tuple[float, str | None]]  # by stage: seconds, the entry that `dvc.lock` then had


def note(stage: str, seconds: float) -> None:
    """Keep how long a stage took that has just ended well."""
    write_json(KEPT, _kept() | {stage: (seconds, _entries().get(stage))})


def complete(stages: Mapping[str, float | None]) -> dict[str, float | None]:
    """Fill in the seconds of what ran in an earlier attempt at this retraining."""
    entries = _entries()
    kept = {
        name: seconds
        for name, (seconds, entry) in _kept().items()
        if entry is not None and entry == entries.get(name)
    }
    return {name: kept.get(name) if now is None else now for name, now in stages.items()}


def clear() -> None:
    """Forget all: the next retraining begins."""
    KEPT.unlink(missing_ok=True)


def _kept() -> Taken:
    with suppress(InputError):  # not there, or damaged: no stage should fail for it
        return read_as(KEPT, Taken)
    return {}


def _entries() -> dict[str, str]:
    """By stage, the digest of its entry in `dvc.lock`: of all that it read and wrote."""
    if not LOCK.exists():
        return {}
    stages = YAML(typ="safe").load(LOCK)["stages"]
    return {name: digest(repr(entry)) for name, entry in stages.items()}
