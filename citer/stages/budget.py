"""The pace that `probe` measured, and the plan of a run within minutes that follows from it."""

import math
from dataclasses import asdict, dataclass
from pathlib import Path

from citer.config.params import Params
from citer.errors import InputError
from citer.pairs.budget import Plan, Workload, plan
from citer.stages import paths
from citer.storage.tables import PARTIAL, digest, read_as, write_json, write_text
from citer.storage.yaml_file import edited

PACE = PARTIAL / "pace.json"  # it depends on the machine, so it is no output for DVC
PROBE = "run `citer probe` first"
SLACK = 1.3  # a run takes rather longer than its forecast, and should end in time


@dataclass(frozen=True)
class Kept:
    """The work that a probe measured, and what it measured it for."""

    probed: str
    work: Workload


def keep(work: Workload, params: Params) -> None:
    """Keep what a probe has measured."""
    write_json(PACE, asdict(Kept(_probed(params), work)))


def _probed(params: Params) -> str:
    """Digest the pair, how it answers, the questions, and whether the LLM writes references."""
    sections = params.model_dump_json(include={"pair", "decode"})
    written = params.references.source, params.evaluate.against, str(bool(params.finetune.epochs))
    return digest(paths.PROBLEMS, sections, *written)


def plan_of(params: Params, minutes: float) -> Plan:
    """Plan a run by the last probe on this machine.

    Raises InputError if there was none of this pair and these questions, or if no cut is enough.
    """
    if not PACE.exists() or not paths.PROBLEMS.exists():
        raise InputError(f"--minutes: this machine's pace is not known; {PROBE}")
    try:
        kept = read_as(PACE, Kept)
    except InputError as error:  # an earlier version wrote it, or it is damaged
        raise InputError(f"--minutes: {error}; {PROBE}") from None
    if kept.probed != _probed(params):
        raise InputError(f"--minutes: the pair or the questions changed since the probe; {PROBE}")
    found = plan(kept.work, params, minutes / SLACK)
    if found.minutes > minutes / SLACK:
        least = math.ceil(SLACK * found.minutes)
        raise InputError(
            f"--minutes: {minutes:g}: expected {least} or more, with all that "
            "can be left out; the rule that `citer probe` prints needs no run"
        )
    return found


def fit(params: Params, minutes: float) -> Plan:
    """Plan a run, and write the plan's settings to params.yaml. Raises InputError."""
    found, path = plan_of(params, minutes), Path("params.yaml")
    if found.changes:
        write_text(path, edited(path, found.changes))
    return found
