"""The seal of a table: a digest of the whole Parquet file, stored in the file's own metadata.

Unlike checksums of pages, it covers the order and number of rows, the metadata and the footer.
"""

import hashlib
from functools import lru_cache
from mmap import ACCESS_READ, mmap
from pathlib import Path

from citer.errors import InputError, reading

SEAL, SEAL_BYTES = b"sealed by citer, sha256 ", 64  # hex digits that follow SEAL
BLANK = SEAL + b"0" * SEAL_BYTES  # the seal in the metadata until the digest is known


def seal(path: Path) -> None:
    """Replace `BLANK` in a Parquet file's metadata by the digest of all other bytes."""
    place, _, digest = _read(path)
    with path.open("r+b") as file:
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
    sealed, digest = _read(path)[1:]
    if sealed != digest:
        raise InputError(f"{path}: damaged, or changed since citer wrote it: create it again")


def _read(path: Path) -> tuple[int, bytes, bytes]:
    """Return the place of a table's digest, the digest there, and that of all other bytes.

    The place follows the last `SEAL`. Before the metadata, the footer has the least and the largest
    text of each column, and a user may have written `SEAL`.
    """
    with path.open("rb") as file:  # a shard may be large; an empty file cannot be mapped
        content = mmap(file.fileno(), 0, access=ACCESS_READ) if path.stat().st_size else b""
    place = content.rfind(SEAL) + len(SEAL)
    if place < len(SEAL):
        raise InputError(f"{path}: not a table that citer wrote")
    end = place + SEAL_BYTES
    total = hashlib.sha256(memoryview(content)[:place])
    total.update(memoryview(content)[end:])
    return place, content[place:end], total.hexdigest().encode()
