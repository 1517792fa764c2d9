"""Check a user's file, or a folder of served answers, as `prepare` would read it."""

from pathlib import Path

from citer.config.params import Params
from citer.data.files import OnBadRow, fail, read_rows
from citer.data.importing import load_problems
from citer.data.tasks.rows import RowError
from citer.data.traffic import read_served
from citer.errors import InputError, shown
from citer.progress import say
from citer.stages.prepare import row_needs

MOST = 1000  # questions of a folder, in the line that is proposed for params.yaml


def check_own(path: Path, place: Path, params: Params) -> str | None:
    """Check a file or folder that will be at `place`. Prints how many rows it has.

    Returns the line that params.yaml lacks, None if it names `place`. Rows of a file that it does
    not name must be JSON objects, since their task is not known. Raises InputError.
    """
    if not path.exists():
        raise InputError(f"{path}: no such file or folder")
    if path.is_dir():
        return _check_served(path, place, params)
    skipped: list[RowError] = []
    on_bad_row = skipped.append if params.prepare.on_bad_row == "skip" else fail
    parts = {part: getattr(params.prepare, part) for part in ("train", "validation", "test")}
    named = [(p, file) for p, files in parts.items() for file in files if Path(file.path) == place]
    for part, file in named:
        rows = load_problems(path, [file.task], row_needs(params, part), on_bad_row)
        say(f"{path}: {len(rows):,} rows of the task {file.task}")
    if not named:
        _check_rows(path, on_bad_row)
    if skipped:
        say(f"{path}: {len(skipped):,} bad rows, which `prepare` leaves out; first: {skipped[0]}")
    return None if named else f"train: [{{path: {place}, task: TASK}}] # or validation, or test"


def _check_served(path: Path, place: Path, params: Params) -> str | None:
    table = read_served(path, params.prepare.tasks)
    if not len(table):
        raise InputError(f"{path}: no table in it, expected a folder of `citer serve --log`")
    say(f"{path}: {len(table):,} served answers")
    if place in [Path(folder.path) for folder in params.prepare.traffic]:
        return None
    return f"traffic: [{{path: {place}, most: {MOST}}}]"


def _check_rows(path: Path, on_bad_row: OnBadRow) -> None:
    count = 0
    for line, row in read_rows(path, on_bad_row):
        count += 1
        if not isinstance(row, dict):
            raise RowError("row", shown(row), "a JSON object", f"{path}:{line}")
    if not count:
        raise InputError(f"{path}: no rows, expected JSON, JSON Lines, Parquet or CSV")
    say(f"{path}: {count:,} rows, not checked further: params.yaml names no task of this file")
