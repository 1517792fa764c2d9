"""The files of a project, to compare two projects and to find what was left behind."""

import hashlib
from pathlib import Path

Files = dict[str, str]  # digests by path


def files_of(folder: Path) -> list[Path]:
    """List all files, relative to the folder."""
    return [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]


def contents(folder: Path) -> Files:
    return {
        path.as_posix(): hashlib.sha256((folder / path).read_bytes()).hexdigest()
        for path in files_of(folder)
        if not (folder / path).is_symlink()
    }


def left_aside(folder: Path) -> list[str]:
    """List temporary files that were not renamed, and replaced files that were not removed."""
    ends = (".aside", ".old", ".tmp")
    return [str(file) for file in folder.rglob("*") if file.name.endswith(ends)]
