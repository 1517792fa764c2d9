"""The user's questions in `data/own`, in versions. A `.dvc` file in git names each content."""

import json
import os
import shlex
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from citer.config.params import Params
from citer.data.tasks import own
from citer.errors import InputError, TemporaryError
from citer.progress import say
from citer.stages.own import check_own
from citer.storage.tables import digest, remove, replacing
from flows.dvc_commands import dvc

OWN = Path(own.OWN)
SUFFIX = ".dvc"


def add(paths: Sequence[Path], params: Params) -> None:
    """Check files and folders, copy them into `data/own`, and give them to DVC: all, or none.

    Prints what to commit, and the lines that params.yaml lacks. Raises InputError.
    """
    places = {path: _place(path) for path in paths}
    if len({*places.values()}) < len(paths):
        raise InputError(f"{OWN}: two files of one name, expected different names")
    lines = [check_own(path, place, params) for path, place in places.items()]
    new = {path: place for path, place in places.items() if not _is_there(path, place)}
    for path, place in new.items():
        _copy(path, place)
    try:
        dvc("add", *map(str, places.values()))
    except TemporaryError as error:
        for place in new.values():
            remove(place)
        raise InputError(str(error)) from None
    pointers = [f"{place}{SUFFIX}" for place in places.values()]
    ignores = sorted({str(place.parent / ".gitignore") for place in places.values()})
    text = [f"Commit: git add {shlex.join([*pointers, *ignores])}"]
    text += [f"params.yaml, under prepare: {line}" for line in lines if line]
    say("\n".join(text))


def _place(path: Path) -> Path:
    """Return where a file will be: where it is if it is in `data/own` already."""
    inside = Path(os.path.relpath(path))
    return inside if inside.is_relative_to(OWN) else OWN / path.absolute().name


def _is_there(path: Path, place: Path) -> bool:
    """Return whether a file is at its place. Raises InputError if another one is."""
    if place.exists() and _content(path) != _content(place):
        expected = f"expected no other of this name; replace it yourself, then add {place}"
        raise InputError(f"{place}: exists with another content, {expected}")
    return place.exists()


def _content(path: Path) -> dict[Path, str]:
    """Return digests of a file, or of a folder's files, without what a server is writing."""
    files = [path] if path.is_file() else filter(Path.is_file, path.rglob("[!.]*"))
    return {file.relative_to(path): digest(file) for file in files}


def _copy(path: Path, place: Path) -> None:
    with replacing(place) as aside:
        if path.is_dir():
            unfinished = shutil.ignore_patterns(".*.jsonl")  # what a server is writing
            shutil.copytree(path, aside, ignore=unfinished)
        else:
            shutil.copyfile(path, aside)


def versioned(folder: Path = Path()) -> list[Path]:
    """List the `.dvc` files of `data/own`, and the `.gitignore` beside each, below `folder`."""
    pointers = sorted((folder / OWN).rglob(f"*{SUFFIX}"))
    ignores = {pointer.with_name(".gitignore") for pointer in pointers}
    files = [*pointers, *sorted(file for file in ignores if file.exists())]
    return [file.relative_to(folder) for file in files]


def named(files: Iterable[Path]) -> list[Path]:
    """Return the questions that the `.dvc` files among `files` name."""
    return [file.with_suffix("") for file in files if file.suffix == SUFFIX]


def refuse_changed(places: Iterable[Path]) -> None:
    """Raise InputError for the first of the questions: a version must name what it used."""
    for place in places:
        if not place.exists():
            raise InputError(f"{place}: missing; expected `dvc pull`, or `dvc checkout`, first")
        raise InputError(
            f"{place}: not as it was added; `citer data add {place}` and commit, or get the added"
            f" content by `dvc checkout --force {place}`"
        )


def check_unchanged() -> None:
    """Raise InputError if a versioned question was changed: DVC would not replace it."""
    refuse_changed(place for place in differing(versioned()) if place.exists())


def differing(files: Iterable[Path]) -> list[Path]:
    """Return those of the `named` questions that are missing, or not as DVC's cache has them."""
    pointers = [f"{place}{SUFFIX}" for place in named(files)]
    stale = json.loads(dvc("status", "--json", *pointers)) if pointers else {}
    return named(map(Path, sorted(stale)))
