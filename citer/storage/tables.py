"""Write files atomically. Check tables against their schema when they are written and read."""

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json
from safetensors import SafetensorError

from citer.errors import InputError, read_text, reading
from citer.sections import complaint
from citer.storage import schema as schemas
from citer.storage.seal import BLANK, check_seal, seal

T = TypeVar("T")

ROW_GROUP = 8192
METADATA_KEY = b"citer"
PARTIAL = Path("data/.partial")
DISK_ERROR = re.compile(r"os error (\d+)|PytorchStreamWriter failed|unexpected pos")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path for a file or folder. On success, rename it to `path`.

    A kill loses nothing: if `path` is missing after it, the next call restores the old one. Raises
    InputError if a file would replace a folder.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    aside, old = _beside(path, "aside"), _beside(path, "old")
    if old.exists() and not path.exists():  # a kill between two renames
        old.replace(path)
    remove(old)
    remove(aside)  # left by a killed writer
    try:
        with writing(path):
            yield aside
        if not aside.is_dir():
            _check_no_folder(path)
        elif path.exists():  # a folder cannot be renamed onto another
            path.replace(old)
        aside.replace(path)
        remove(old)
    except OSError as error:  # it names the temporary path
        error.filename = str(error.filename).replace(str(aside), str(path))
        raise
    finally:
        remove(aside)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Name `path` in an OSError that names no file, such as that of a full disk.

    Also raises OSError if a library reports a full disk as another error.
    """
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise
    except (RuntimeError, SafetensorError) as error:
        if not (code := DISK_ERROR.search(str(error))):
            raise
        number = int(code[1] or errno.ENOSPC)
        raise OSError(number, os.strerror(number), str(path)) from error


def check_target(path: Path) -> None:
    """Raise InputError if no file can be written to `path`, before its content is computed."""
    try:
        _check_no_folder(path)
        aside = _beside(path, token_hex(4))  # no other's: a process may be writing now
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.touch()
        aside.unlink()
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None


def _beside(path: Path, part: str) -> Path:
    return path.with_name(f".{path.name}.{part}")


def _check_no_folder(path: Path) -> None:
    if path.exists() and not path.is_file():
        raise InputError(f"{path}: not a file, expected a file or nothing")


def remove(path: Path) -> None:
    """Remove a file or a folder if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    with replacing(path) as aside:
        aside.write_text(text, encoding="utf-8")


def write_json(path: Path, content: Any) -> None:
    write_text(path, json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def read_json(path: Path, *, allow_nan: bool = True) -> Any:
    """Return the content of a JSON file. Raises InputError if it is missing or not JSON."""
    text = read_text(path)
    try:
        return from_json(text, allow_inf_nan=allow_nan)
    except ValueError as error:
        raise InputError(f"{path}: not JSON: {error}") from None


def read_as(path: Path, kind: type[T]) -> T:
    """Parse a JSON file as `kind`. Raises InputError with the file and the wrong key."""
    content, adapter = read_json(path, allow_nan=False), TypeAdapter(kind)
    try:
        parsed = adapter.validate_python(content)
        # Raises for a float that was parsed from 1e999 or the text "nan".
        json.dumps(adapter.dump_python(parsed), default=str, allow_nan=False)
    except ValidationError as error:
        raise InputError(f"{path}: {complaint(error)}") from None
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None
    return parsed


def write_table(path: Path, table: pa.Table, schema: pa.Schema, metadata: dict[str, Any]) -> None:
    """Write `table` as Parquet, as `schema` declares it, and seal it (`citer.storage.seal`).

    `metadata` (JSON) and the schema version are stored under the key `citer` of the file's
    metadata. Equal content gives equal bytes.
    """
    mismatch = schema_mismatch(table, schema)
    assert not mismatch, f"{path}: {mismatch}"
    stamp = json.dumps({"schema_version": schemas.VERSION, **metadata}, sort_keys=True)
    marks = {METADATA_KEY: stamp.encode(), b"seal": BLANK}
    table = table.cast(schema).replace_schema_metadata(marks)
    light = [field.name for field in schema if not pa.types.is_fixed_size_binary(field.type)]
    with replacing(path) as aside:
        pq.write_table(
            table, aside, compression="zstd", use_dictionary=light, row_group_size=ROW_GROUP
        )
        seal(aside)


def read_table(path: Path, schema: pa.Schema, columns: list[str] | None = None) -> pa.Table:
    """Read a Parquet file, or only `columns` of it, and check it against `schema`.

    Raises InputError with the file and the first column that is not as declared.
    """
    check_seal(path)
    stored = pq.read_schema(path).names
    expected = schema if columns is None else pa.schema([schema.field(name) for name in columns])
    table = pq.read_table(path, columns=columns and [name for name in columns if name in stored])
    if mismatch := schema_mismatch(table, expected):
        raise InputError(f"{path}: {mismatch}")
    return table


def table_metadata(path: Path) -> dict[str, Any]:
    """Return the metadata that `write_table` stored in the file. Raises InputError."""
    check_seal(path)
    metadata: dict[str, Any] = json.loads(pq.read_metadata(path).metadata[METADATA_KEY])
    if (version := metadata["schema_version"]) != schemas.VERSION:
        raise InputError(f"{path}: schema version {version}, expected {schemas.VERSION}")
    return metadata


def schema_mismatch(table: pa.Table, schema: pa.Schema) -> str | None:
    """Return the first difference between a table and its declared schema, or None."""
    if table.column_names != schema.names:
        return f"columns are {table.column_names}, expected {schema.names}"
    for field in schema:
        column = table.column(field.name)
        if not column.type.equals(field.type):
            return f"column {field.name} is {column.type}, expected {field.type}"
        if column.null_count and not field.nullable:
            return f"column {field.name} has {column.null_count} nulls, expected none"
    return None


def whole_lines(path: Path) -> int:
    """Count the lines of a file, 0 if it is missing. Removes an incomplete last line."""
    if not path.exists():
        return 0
    with path.open("r+b") as file:
        lengths = [len(line) for line in file if line.endswith(b"\n")]
        file.truncate(sum(lengths))
    return len(lengths)


def digest(*parts: Path | str) -> str:
    """Return the first 16 bytes, in hex, of SHA-256 over texts, files and folders.

    Raises InputError for a missing file.
    """
    total = hashlib.sha256()
    for part in parts:
        if isinstance(part, str):
            _feed_text(total, part)
        else:
            _feed(total, part)
    return total.hexdigest()[:32]


def _feed(total: "hashlib._Hash", path: Path) -> None:
    for file in sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]:
        with reading(file), file.open("rb") as stream:
            _feed_text(total, f"{file.relative_to(path)} {file.stat().st_size}")
            hashlib.file_digest(stream, lambda: total)


def _feed_text(total: "hashlib._Hash", text: str) -> None:
    content = text.encode()
    total.update(f"{len(content)}:".encode() + content)  # the length shows where a part ends


def partial_dir(stage: str, inputs: str) -> Path:
    """Return the folder for a stage's unfinished work on inputs with this digest.

    Removes the stage's unfinished work on other inputs.
    """
    home = PARTIAL / stage
    for other in home.iterdir() if home.is_dir() else ():
        if other.name != inputs:
            remove(other)
    chosen = home / inputs
    chosen.mkdir(parents=True, exist_ok=True)
    return chosen
