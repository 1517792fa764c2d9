"""The seal of a table: a digest of the whole Parquet file, kept in its own metadata.

It covers what checksums of pages do not: the order and number of rows, the metadata, the footer.
"""

import hashlib
import os
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from citer.errors import InputError, reading

BLOCK = 2**20
SEAL, SEAL_BYTES = b"sealed by citer, sha256 ", 64  # which follow it, in hex
BLANK = SEAL + b"0" * SEAL_BYTES  # what a writer puts into the metadata


def seal(path: Path) -> None:
    """Put the digest of a Parquet file's other bytes into its metadata."""
    with path.open("r+b") as file:
        digest = _digest_around(file, place := _seal_place(file))
        file.seek(place)
        file.write(digest)


def check_seal(path: Path) -> None:
    """Raise InputError where a table is not, to the last bit, as it was sealed."""
    with reading(path):
        found = path.stat()
        _check(path, found.st_mtime_ns, found.st_size, found.st_ino)


@lru_cache(4096)  # a stage opens each table several times
def _check(path: Path, *_: int) -> None:
    with path.open("rb") as file:
        digest = _digest_around(file, place := _seal_place(file))
        file.seek(place)
        if file.read(SEAL_BYTES) != digest:
            raise InputError(f"{path}: damaged, or changed since citer wrote it: make it again")


def _seal_place(file: BinaryIO) -> int:
    """Where the seal stands: after `SEAL` in the metadata, which end the file with their length."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 8))
    start = max(0, size - 8 - int.from_bytes(file.read(4), "little"))
    file.seek(start)
    found = file.read().find(SEAL)
    if found < 0:
        raise InputError(f"{file.name}: not a table that citer wrote")
    return start + found + len(SEAL)


def _digest_around(file: BinaryIO, place: int) -> bytes:
    """SHA-256 in hex of a file but for the `SEAL_BYTES` at `place`."""
    total = hashlib.sha256()
    file.seek(0)
    while block := file.read(min(BLOCK, place - file.tell())):
        total.update(block)
    file.seek(place + SEAL_BYTES)
    while block := file.read(BLOCK):
        total.update(block)
    return total.hexdigest().encode()
