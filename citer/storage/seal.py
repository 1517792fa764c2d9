"""The seal of a table: a digest of the whole Parquet file, stored in the file's own metadata.

Unlike checksums of pages, it covers the order and number of rows, the metadata and the footer.
"""

import hashlib
import os
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from citer.errors import InputError, reading

BLOCK = 2**20
SEAL, SEAL_BYTES = b"sealed by citer, sha256 ", 64  # hex digits that follow SEAL
BLANK = SEAL + b"0" * SEAL_BYTES  # the seal in the metadata until the digest is known


def seal(path: Path) -> None:
    """Replace `BLANK` in a Parquet file's metadata by the digest of all other bytes."""
    with path.open("r+b") as file:
        digest = _digest_around(file, place := _seal_place(file))
        file.seek(place)
        file.write(digest)


def check_seal(path: Path) -> None:
    """Raise InputError if any byte of a table changed since it was sealed."""
    if path.parts[:1] == ("data",) and not path.exists():
        raise InputError(f"{path}: no such file; `dvc repro` runs the stages that make it")
    with reading(path):
        status = path.stat()
        _check(path, status.st_mtime_ns, status.st_size, status.st_ino)


@lru_cache(4096)  # a stage opens each table several times
def _check(path: Path, *_: int) -> None:
    with path.open("rb") as file:
        digest = _digest_around(file, place := _seal_place(file))
        file.seek(place)
        if file.read(SEAL_BYTES) != digest:
            raise InputError(f"{path}: damaged, or changed since citer wrote it: create it again")


def _seal_place(file: BinaryIO) -> int:
    """Return the offset of the digest, which follows the last `SEAL` in the footer.

    The footer's length is in the last eight bytes of the file. Before the metadata it has the least
    and the largest text of each column, and a user may have written `SEAL`.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 8))
    start = max(0, size - 8 - int.from_bytes(file.read(4), "little"))
    file.seek(start)
    offset = file.read().rfind(SEAL)
    if offset < 0:
        raise InputError(f"{file.name}: not a table that citer wrote")
    return start + offset + len(SEAL)


def _digest_around(file: BinaryIO, place: int) -> bytes:
    """Return SHA-256 in hex over a file without the `SEAL_BYTES` at `place`."""
    total = hashlib.sha256()
    file.seek(0)
    while block := file.read(min(BLOCK, place - file.tell())):
        total.update(block)
    file.seek(place + SEAL_BYTES)
    while block := file.read(BLOCK):
        total.update(block)
    return total.hexdigest().encode()
