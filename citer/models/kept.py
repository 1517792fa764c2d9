"""Digests of a model's files, kept between processes while the files stay as they are.

Files are known by their paths, inodes, sizes and times: of the last change of content (mtime), and
of content or inode (ctime), which no program can set back. Two writes within a tick of the file
system's clock leave equal times, and a write through a memory map may set them half a minute late.
So nothing is kept of files that changed less than a minute before they were read.
"""

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, Field

from citer.errors import InputError
from citer.storage.tables import digest, read_as, write_json

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "citer")
QUIET = 60.0  # seconds

States = list[list[int]]


class Kept(BaseModel):
    """A digest, and the states of the files when they were read."""

    states: States
    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]


def kept_digest(*files: Path) -> str:
    """Return `digest` of files. Reads them only if they have changed since the last call.

    Raises InputError for a missing file. A cache that cannot be read or written is ignored.
    """
    place = CACHE / "digests" / f"{digest(*(str(file.absolute()) for file in files))}.json"
    states = _quiet_states(files)
    with suppress(InputError):
        kept = read_as(place, Kept)
        if kept.states == states:
            return kept.digest
    found = digest(*files)
    if states and states == _quiet_states(files):
        with suppress(OSError, InputError):
            write_json(place, {"states": states, "digest": found})
    return found


def _quiet_states(files: tuple[Path, ...]) -> States | None:
    """Return the state of each file, None if one is missing or has changed in the last minute."""
    try:
        stats = [file.stat() for file in files]
    except OSError:
        return None  # `digest` names the file
    newest = max(max(each.st_mtime_ns, each.st_ctime_ns) for each in stats)
    if newest > time.time_ns() - QUIET * 1e9:
        return None
    return [[each.st_ino, each.st_size, each.st_mtime_ns, each.st_ctime_ns] for each in stats]
