"""Remove rows from the tables of a log, and find what is left of them.

python docs/examples/erase.py remove FOLDER TEXT    # rows with this text; prints their ids
python docs/examples/erase.py find TEXT…            # files below the current folder with a text
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from citer.storage.schema import AUDITED
from citer.storage.tables import read_table, table_metadata, write_table


def remove(folder: Path, text: str) -> list[str]:
    """Write the tables again without the rows that have the text. Return the ids of these rows."""
    removed = []
    for file in sorted(folder.glob("*.parquet")):
        rows = read_table(file, AUDITED).to_pylist()
        kept = [row for row in rows if not any(text in each for each in strings(row))]
        if len(kept) < len(rows):
            table = pa.Table.from_pylist(kept, AUDITED)
            write_table(file, table, AUDITED, table_metadata(file))
            file.chmod(0o600)
        removed += [row["problem_id"] for row in rows if row not in kept]
    return removed


def find(texts: list[str]) -> list[Path]:
    """Return the files with one of the texts, whatever their names: DVC's cache has digests."""
    files = (file for file in sorted(Path().rglob("*")) if file.is_file())
    return [file for file in files if any(holds(file, text) for text in texts)]


def holds(file: Path, text: str) -> bool:
    """Return whether a file has a text. The strings of a Parquet table are compressed."""
    content = file.read_bytes()
    if content.startswith(b"PAR1"):
        batches = pq.ParquetFile(file).iter_batches()
        return any(text in each for batch in batches for each in strings(batch.to_pylist()))
    return text.encode() in content or json.dumps(text)[1:-1].encode() in content


def strings(value: Any) -> Iterator[str]:
    """Yield the strings in nested lists and dictionaries."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from strings(each)


if __name__ == "__main__":
    command, *given = sys.argv[1:]
    found = find(given) if command == "find" else remove(Path(given[0]), given[1])
    print(*found, sep="\n")
