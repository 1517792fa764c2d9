"""The logged rows of a request or of a user: take them out of a log, and find their texts."""

import html
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from citer.data.problems import first_id
from citer.errors import InputError
from citer.serving.log import Row, is_log, make_tables
from citer.storage.schema import AUDITED
from citer.storage.tables import read_table, table_metadata, write_table

FIELDS = ("question", "content")  # of tables and JSON, which have what was asked
LONG = 24  # characters; a shorter text, such as "yes", is in files that have nothing of the row
BINARY = 1024  # bytes at the start of a file; weights and pictures have a 0 there, texts do not


@contextmanager
def closed(folder: Path) -> Iterator[dict[Path, pa.Table]]:
    """Yield the tables of a log, journals included, while no server can log to the folder.

    Raises InputError if there is no folder, if a server logs to it, or if a file is damaged.
    """
    if not (folder.is_dir() and is_log(folder)):
        raise InputError(f"{folder}: expected a folder of `citer serve --log`")
    number = os.open(folder, os.O_RDONLY)
    try:
        make_tables(folder, number)
    except BlockingIOError:
        raise InputError(f"{folder}: a server logs to it; expected none, stop it first") from None
    else:
        yield {file: read_table(file, AUDITED) for file in sorted(folder.glob("[!.]*.parquet"))}
    finally:
        os.close(number)


def remove_rows(file: Path, table: pa.Table, column: str, key: str) -> int:
    """Write a table again without the rows that have `key`. Return the number of these."""
    kept = table.filter(pc.invert(pc.equal(table[column], key).fill_null(False)))
    if len(kept) < len(table):
        write_table(file, kept, AUDITED, table_metadata(file))
        file.chmod(0o600)
    return len(table) - len(kept)


class Texts:
    """What tells of the rows that have `key` in `column`, a name in the schema AUDITED.

    That is the id of a question, a text of LONG characters anywhere, or a shorter question or turn
    as the whole value of one of FIELDS. System turns that others have, too, do not count.
    """

    def __init__(self, column: str, key: str, rows: Iterable[Row]) -> None:
        self.column, self.key = column, key
        common, asked, answers, ids = (set[str]() for _ in range(4))
        for row in rows:
            turns = row["messages"] or ()
            if row[column] == key:
                asked |= {row["question"], *(turn["content"] for turn in turns)}
                answers |= {row["completion"], row["reference"] or ""}
                ids.add(row["problem_id"])
            else:
                common |= {turn["content"] for turn in turns if turn["role"] == "system"}
        asked = {text for text in asked - common if text.strip()}
        self.long = {text for text in asked | answers if len(text) >= LONG}
        self.asked, self.ids = asked, ids
        quoted = {text for each in ids for text in _as_json(each)}
        fields = {
            f'"{field}":{space}{text}'
            for field in FIELDS
            for each in asked
            for text in _as_json(each)
            for space in ("", " ")
        }
        inside = {text[1:-1] for each in self.long for text in _as_json(each)}
        plain = {text for each in self.long for text in (each, *_as_html(each))}
        self._written = {text.encode() for text in quoted | fields | inside | plain}

    def held_by(self, file: Path) -> bool:
        """Return whether a file has a text. The strings of a Parquet table are compressed."""
        if not file.stat().st_size:
            return False
        with file.open("rb") as stream, mmap(stream.fileno(), 0, access=ACCESS_READ) as content:
            if content[:4] == b"PAR1":
                return self._in_table(file)
            text = b"\0" not in content[:BINARY]
            return text and any(content.find(each) >= 0 for each in self._written)

    def _in_table(self, file: Path) -> bool:
        try:
            table = pq.ParquetFile(file)
            names = [each.name for each in table.schema_arrow if "string" in str(each.type)]
            for batch in table.iter_batches(columns=names):
                owned = self.column in names and self.key in batch[self.column].to_pylist()
                if owned or any(self._is(*each) for each in {*_strings(batch.to_pylist())}):
                    return True
        except pa.ArrowException:
            return True  # it is torn, and nobody can say what it has
        return False

    def _is(self, field: str, text: str) -> bool:
        asked = field in FIELDS and text in self.asked
        known = asked or first_id(text) in self.ids
        return known or (len(text) >= LONG and any(each in text for each in self.long))


def _as_json(text: str) -> tuple[str, str]:
    return json.dumps(text), json.dumps(text, ensure_ascii=False)


def _as_html(text: str) -> tuple[str, str]:
    """Return the spellings of the standard library and of the report's templates."""
    escaped = html.escape(text)
    return escaped, escaped.replace("&quot;", "&#34;").replace("&#x27;", "&#39;")


def _strings(value: Any, field: str = "") -> Iterator[tuple[str, str]]:
    """Yield each text with the field that has it."""
    if isinstance(value, str):
        yield field, value
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from _strings(each, name)
    elif isinstance(value, list):
        for each in value:
            yield from _strings(each, field)
