"""Read the raw rows of a user's file: JSON, JSON Lines, Parquet or CSV."""

import csv
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from io import StringIO
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq

from citer.data.tasks.rows import RowError
from citer.errors import LARGEST, InputError, read_text, reading

BATCH = 4096  # rows of a Parquet file that are Python objects at the same time

OnBadRow = Callable[[RowError], object]
Rows = Iterator[tuple[int, Any]]


def fail(error: RowError) -> NoReturn:
    """Raise the error of a bad row. To skip bad rows instead, pass the `append` of a list."""
    raise error


def read_rows(path: Path, on_bad_row: OnBadRow = fail) -> Rows:
    """Yield (line, row) for each row; in Parquet and JSON, the row's number counts as its line.

    The content decides the kind of file. A text that begins neither with `[` nor with `{` is CSV
    if the suffix says so, and else JSON Lines. `on_bad_row` gets the error of each line that is no
    row. Raises InputError if the file cannot be read.
    """
    with reading(path), path.open("rb") as file:
        start = file.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()
    suffix = path.suffix.lower()
    if start.startswith(b"PAR1") or suffix == ".parquet":
        return _parquet_rows(path)
    if start.startswith(b"["):
        return _array_rows(path, read_text(path))
    if suffix == ".csv" and not start.startswith(b"{"):
        return _csv_rows(path, read_text(path), on_bad_row)
    return _line_rows(path, read_text(path), on_bad_row)


def _parquet_rows(path: Path) -> Rows:
    number = 0
    try:
        file = pq.ParquetFile(path)
        _check_names(path, file.schema_arrow.names)
        for batch in file.iter_batches(BATCH):
            for row in batch.to_pylist():
                number += 1
                yield number, row
    except InputError:
        raise
    except (pa.ArrowException, OSError, LookupError, ValueError, OverflowError) as error:
        raise InputError(f"{path}: Parquet, cannot be read after row {number}: {error}") from None


def _check_names(where: Path | str, names: Sequence[str]) -> None:
    for name, count in Counter(names).items():
        if count > 1:
            raise InputError(f"{where}: column {name!r}: {count} times, expected once")


def _array_rows(path: Path, text: str) -> Rows:
    try:
        yield from enumerate(json.loads(text), start=1)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not a JSON array: {error}") from None


def _line_rows(path: Path, text: str, on_bad_row: OnBadRow) -> Rows:
    for number, line in enumerate(StringIO(text), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            found = f"not JSON: {error}"
            on_bad_row(RowError("row", found, "one JSON object per line", f"{path}:{number}"))
        else:
            yield number, row


def _csv_rows(path: Path, text: str, on_bad_row: OnBadRow) -> Rows:
    """Yield rows of texts, by column. A row's line is that of its first cell."""
    csv.field_size_limit(LARGEST)  # as in the other kinds of files, instead of 131,072
    reader = csv.reader(StringIO(text), strict=True)
    line = 1
    try:
        header = next(reader, [])
        _check_names(f"{path}:1", header)
        line = reader.line_num + 1
        for cells in reader:
            if len(cells) == len(header):
                yield line, dict(zip(header, cells, strict=True))
            elif cells:
                expected = f"{len(header)}, one for each column of the header"
                on_bad_row(RowError("row", f"{len(cells)} cells", expected, f"{path}:{line}"))
            line = reader.line_num + 1
    except csv.Error as error:
        raise InputError(f"{path}:{line}: not CSV: {error}") from None
