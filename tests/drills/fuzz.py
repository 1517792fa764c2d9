"""Damage files with a seeded generator: their bytes, JSON, tables or kind of file."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from ruamel.yaml import YAML

Damage = Callable[[Random, Path], None]

HUGE = 10**30
VALUES = (
    *(None, True, 0, -1, 1, 0.5, 2**31, -(2**63), HUGE, 1e308, float("nan"), float("inf")),
    *("", " ", "x", "x" * 5000, "a\nb", "\ud83d", "\0", "é🦊", "2001-99-99", "nan", "../../.."),
    *([], {}, [None], [[]], {"": {}}, [HUGE] * 3, ["x"] * 1000, {"slm": 1}),
)
TEXTS = (
    *("[" * 5000, "{" * 100_000, '{"a":' * 100_000, "9" * 5000, "0x" + "f" * 5000, "null", "\t"),
    *("2001-99-99", "!!int x", "!!bool x", "!!float x", "!!python/object:os.system x"),
    *("&a [*a, *a]", '{"a": NaN}', '"', "\\", "\x07", "\ufeff", "\u2028", "? [a]\n: b\n"),
    *("---\n---\n", "%YAML 1.1\n---\n"),
)


def flip(rng: Random, path: Path) -> None:
    """Flip a few bits."""
    content = bytearray(path.read_bytes())
    for _ in range(rng.choice((1, 1, 8))):
        if content:
            content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    path.write_bytes(content)


def truncate(rng: Random, path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: rng.randrange(len(content) + 1)])


def repeat(rng: Random, path: Path) -> None:
    """Repeat a piece."""
    content, (start, end) = path.read_bytes(), _piece(rng, path)
    path.write_bytes(content[:end] + content[start:])


def cut(rng: Random, path: Path) -> None:
    """Remove a piece."""
    content, (start, end) = path.read_bytes(), _piece(rng, path)
    path.write_bytes(content[:start] + content[end:])


def overwrite(rng: Random, path: Path) -> None:
    """Replace a piece by noise, or by zeros as after a crash."""
    content, (start, end) = path.read_bytes(), _piece(rng, path)
    noise = rng.choice((bytes(end - start), rng.randbytes(end - start)))
    path.write_bytes(content[:start] + noise + content[end:])


def _piece(rng: Random, path: Path) -> tuple[int, int]:
    size = path.stat().st_size
    start = rng.randrange(size + 1)
    return start, min(size, start + rng.choice((1, 4, 64, size)))


def insert(rng: Random, path: Path) -> None:
    """Insert a text that is hard to parse, or replace everything by it."""
    text = rng.choice(TEXTS).encode()
    content = path.read_bytes() if rng.random() < 0.7 else b""
    breaks = [n for n, byte in enumerate(content) if byte in b"\n:,[{ "] or [0]
    place = rng.choice(breaks)
    path.write_bytes(content[:place] + text + content[place:])


def vanish(rng: Random, path: Path) -> None:
    path.unlink()


def empty(rng: Random, path: Path) -> None:
    path.write_bytes(b"")


def become_folder(rng: Random, path: Path) -> None:
    path.unlink()
    path.mkdir()


def become_fifo(rng: Random, path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def become_device(rng: Random, path: Path) -> None:
    """Replace the file by a link to an endless, a full or an empty device."""
    path.unlink()
    path.symlink_to(rng.choice(("/dev/zero", "/dev/full", "/dev/null")))


def become_loop(rng: Random, path: Path) -> None:
    """Replace the file by a link to itself, or to nothing."""
    path.unlink()
    path.symlink_to(rng.choice((path.name, "nowhere")))


def swap(rng: Random, path: Path) -> None:
    """Swap the file with another one, usually of the same kind."""
    others = sorted(p for p in Path().rglob("*") if p.is_file() and p != path)
    alike = [other for other in others if other.suffix == path.suffix]
    other = rng.choice(alike if alike and rng.random() < 0.8 else others)
    aside = path.with_name("swapped")
    path.rename(aside)
    shutil.copy(other, path)
    shutil.copy(aside, other)
    aside.unlink()


def change_json(rng: Random, path: Path) -> None:
    content = json.loads(path.read_text())
    path.write_text(json.dumps(changed(rng, content)))


def change_line(rng: Random, path: Path) -> None:
    """Change one row of JSON Lines."""
    lines = path.read_text().splitlines()
    place = rng.randrange(len(lines))
    lines[place] = json.dumps(changed(rng, json.loads(lines[place])))
    path.write_text("\n".join(lines))


def change_yaml(rng: Random, path: Path) -> None:
    """Change a value, and write JSON, which is valid YAML."""
    content = YAML(typ="safe").load(path)
    path.write_text(json.dumps(changed(rng, content)))


def changed(rng: Random, content: Any) -> Any:
    """Replace, remove, double or nest one value."""
    known = list(places(content))
    if not known:
        return rng.choice(VALUES)
    where, key = rng.choice(known)
    match rng.randrange(6):
        case 0:
            del where[key]
        case 1 if isinstance(where, list):
            where.append(where[key])
        case 1:
            where[f"{key}_"] = where.pop(key)
        case 2:
            where[key] = [where[key]]
        case _:
            where[key] = rng.choice(VALUES)
    return content


def places(content: Any) -> Iterator[tuple[Any, Any]]:
    keys = content if isinstance(content, dict) else range(len(content))
    for key in keys:
        yield content, key
        if isinstance(content[key], dict | list):
            yield from places(content[key])


def change_table(rng: Random, path: Path) -> None:
    """Change rows or columns as another program could, but keep the metadata."""
    table = pq.read_table(path)
    rows = list(range(len(table)))
    name = rng.choice(table.column_names)
    place = table.column_names.index(name)
    altered = rng.choice(
        (
            table.take(pa.array(rows[::-1], pa.int64())),
            pa.concat_tables([table, table]),
            table.slice(0, 0),
            table.slice(1),
            table.drop_columns(name),
            table.append_column("more", pa.array(rows)),
            table.set_column(place, name, pa.nulls(len(table), table[name].type)),
            table.set_column(place, name, pa.array(["x"] * len(table))),
            table.rename_columns([f"{column}_" for column in table.column_names]),
        )
    )
    kept = {key: pq.read_metadata(path).metadata[key] for key in (b"citer", b"seal")}
    pq.write_table(altered.replace_schema_metadata(kept), path)


def change_metadata(rng: Random, path: Path) -> None:
    """Change a table's metadata: another value, no JSON, none at all."""
    table = pq.read_table(path)
    metadata = dict(pq.read_metadata(path).metadata)
    stamp = json.dumps(changed(rng, json.loads(metadata[b"citer"]))).encode()
    metadata[b"citer"] = rng.choice((stamp, stamp, b"{", b"", b"\xff", b"[]", b"null"))
    kept = {key: metadata[key] for key in (b"citer", b"seal") if rng.random() < 0.9}
    pq.write_table(table.replace_schema_metadata(kept), path)


def change_tensors(rng: Random, path: Path) -> None:
    """Change a value in the header of safetensors, or set some weights to NaN."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header, weights = json.loads(content[8 : 8 + length]), bytearray(content[8 + length :])
    if rng.random() < 0.5:
        header = changed(rng, header)
    else:
        start = rng.randrange(0, len(weights), 4)
        weights[start : start + 64] = b"\0\0\xc0\x7f" * (len(weights[start : start + 64]) // 4)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + weights)


ANY: tuple[Damage, ...] = (
    *(flip, flip, truncate, repeat, cut, overwrite, insert, vanish, empty),
    *(become_folder, become_fifo, become_device, become_loop, swap),
)
OWN: dict[str, tuple[Damage, ...]] = {
    ".yaml": (change_yaml,) * 12,
    ".json": (change_json,) * 12,
    ".jsonl": (change_line,) * 12,
    ".parquet": (change_table, change_metadata) * 4,
    ".safetensors": (change_tensors,) * 6,
}


def damage(rng: Random, path: Path) -> str:
    """Damage a file in one way; return its name."""
    chosen = rng.choice(ANY + OWN[path.suffix])
    chosen(rng, path)
    return chosen.__name__
