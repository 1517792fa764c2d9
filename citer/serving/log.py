"""Log served answers as tables of the schema AUDITED, from which `prepare` makes training rows.

Each row is appended to a journal, a hidden file of JSON lines. After `ROWS` rows, or with the first
one after `SECONDS`, the journal becomes a table. A killed server loses no row that it has written:
the next one that starts while no other logs to the folder makes tables of its journals.
"""

import fcntl
import json
import logging
import os
import secrets
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import import_module
from itertools import count, islice
from pathlib import Path
from threading import Lock
from typing import Any

import pyarrow as pa

from citer.data.problems import Choice, Message, problem_key
from citer.decoding.answer import Visit
from citer.errors import InputError, read_text
from citer.serving.deployment import Observer, Reply
from citer.storage.schema import AUDITED
from citer.storage.tables import schema_mismatch, whole_lines, write_table, write_text

ROWS = 1000
CHARACTERS = 2**26
SECONDS = 3600.0
JOURNAL = ".jsonl"
IGNORE, IGNORED = ".gitignore", "*\n"  # what users asked stays out of git
LOG = logging.getLogger(__name__)

ASKED = ("problem_id", "task", "question", "choices", "messages", "answer")
Decode = Callable[[list[int]], str | list[str]]  # a tokenizer's
Row = dict[str, Any]
Redact = Callable[[Row], Row | None]


class Traffic:
    """Writes rows to a folder that only the user can read.

    `redact` gets a copy of each row, and returns the row to store, or None to leave it out. A row
    for which it fails is never stored. `counts` has the numbers of rows: `logged`, `left_out` and
    `failed` by `redact`, `lost` as the disk was full or too many waited. Threads may share the log.

    Raises InputError if the folder cannot be written, or has a damaged journal.
    """

    def __init__(self, folder: Path, redact: Redact = lambda row: row) -> None:
        self.folder, self.redact = folder, redact
        self.counts: Counter[str] = Counter()
        self._journals: dict[str, _Journal] = {}
        self._alone = Lock()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            is_log(folder)
            folder.chmod(0o700)
            write_text(folder / IGNORE, IGNORED)
            self._lock = _finish_killed(folder)
        except OSError as error:
            raise InputError(f"{folder}: cannot be written: {error.strerror}") from None

    def observer(self, stamp: Mapping[str, Any], decode: Decode) -> Observer:
        """Return the observer of a router's answers; `stamp` is the metadata of its tables."""
        kept = json.dumps(stamp, sort_keys=True)

        def observe(reply: Reply) -> None:
            self.put(kept, str(reply.answer.policy.rule), audited_row(reply, decode))

        return observe

    def put(self, stamp: str, rule: str, row: Row) -> None:
        """Store a row. `stamp` is JSON."""
        with self._alone:
            self._journalled(stamp, rule, row)
            self._rotate(lambda each: each.is_due)

    def flush(self) -> None:
        """Write all rows so far as tables."""
        with self._alone:
            self._rotate(lambda _: True)

    def close(self) -> None:
        """Write all rows as tables, those before a full disk, too; leave the folder to others."""
        self.flush()
        try:
            make_tables(self.folder, self._lock)
        except BlockingIOError:
            pass  # another server logs here, and does it at its end
        except (OSError, InputError) as error:
            LOG.warning("a journal becomes no table: %s", error)
        os.close(self._lock)

    def _journalled(self, stamp: str, rule: str, row: Row) -> None:
        try:
            kept = redacted(row, self.redact)
        except (Exception, SystemExit) as error:  # the user's function may raise anything
            # The message may repeat what was to be hidden.
            self.count("failed", f"{type(error).__name__} in its redaction")
            return
        if kept is None:
            self.counts["left_out"] += 1
            return
        try:
            if stamp not in self._journals:
                self._journals[stamp] = _Journal(self.folder, stamp)
            self._journals[stamp].append({"rule": rule, "row": kept})
            self.counts["logged"] += 1
        except OSError as error:
            torn = self._journals.pop(stamp, None)  # its last line may be torn
            if torn and not torn.rows:
                torn.path.unlink(missing_ok=True)  # else a full disk leaves one for each row
            self.count("lost", f"{self.folder}: {error.strerror}")

    def count(self, kind: str, reason: str) -> None:
        """Count a row that is not logged."""
        if not self.counts[kind]:  # the counts tell of the others
            LOG.warning("a row is not logged: %s", reason)
        self.counts[kind] += 1

    def _rotate(self, due: "Callable[[_Journal], bool]") -> None:
        for stamp in [stamp for stamp, journal in self._journals.items() if due(journal)]:
            journal = self._journals.pop(stamp)
            try:
                make_table(journal.path)
            except (OSError, InputError) as error:
                LOG.warning("a journal becomes no table: %s", error)
            journal.file.close()


class _Journal:
    """Rows that are in no table yet."""

    def __init__(self, folder: Path, stamp: str) -> None:
        name = f".{datetime.now(UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(4)}{JOURNAL}"
        self.path, self._since = folder / name, time.monotonic()
        self.rows = self._characters = 0
        self.path.touch(0o600, exist_ok=False)
        self.file = self.path.open("w", encoding="utf-8")
        self.file.write(stamp + "\n")

    @property
    def is_due(self) -> bool:
        is_full = self.rows >= ROWS or self._characters >= CHARACTERS
        return is_full or time.monotonic() - self._since >= SECONDS

    def append(self, entry: Row) -> None:
        self._characters += self.file.write(json.dumps(entry, ensure_ascii=False) + "\n")
        self.file.flush()
        self.path.stat()  # raises if somebody has removed it: the row is in no file
        self.rows += 1


def is_log(folder: Path) -> bool:
    """Return whether a folder is a log. Raises InputError if it has files that are not of one."""
    ignore = folder / IGNORE
    if ignore.exists():
        others = [] if ignore.read_text() == IGNORED else [ignore]
    else:
        others = [file for file in sorted(folder.glob("[!.]*")) if file.suffix != ".parquet"]
    for other in others:
        raise InputError(f"{other}: not of a log, expected a folder for the log alone")
    return ignore.exists() or any(folder.glob("[!.]*"))


def _finish_killed(folder: Path) -> int:
    """Make tables of journals if no other server logs here. Return the file of our own lock."""
    number = os.open(folder, os.O_RDONLY)
    try:
        with suppress(BlockingIOError):
            make_tables(folder, number)
    except InputError:
        os.close(number)
        raise
    fcntl.flock(number, fcntl.LOCK_SH)
    return number


def make_tables(folder: Path, number: int) -> None:
    """Lock a folder, open as `number`, for this process alone; make tables of its journals.

    Raises BlockingIOError if a server logs to it, InputError if a journal is damaged.
    """
    fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    for path in sorted(folder.glob(f".*{JOURNAL}")):
        make_table(path)


def make_table(journal: Path) -> None:
    """Replace a journal by a table; can be repeated. Raises InputError if it is damaged."""
    whole_lines(journal)
    try:
        stamp, *entries = map(json.loads, read_text(journal).split("\n")[:-1] or ["{}"])
    except ValueError as error:
        raise InputError(f"{journal}: not a journal: {error}; remove it") from None
    if entries:
        try:
            table = pa.Table.from_pylist([entry["row"] for entry in entries], AUDITED).cast(AUDITED)
        except (pa.ArrowException, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{journal}: not a journal: {error}; remove it") from None
        target = journal.with_name(journal.stem.removeprefix(".") + ".parquet")
        rules = Counter(entry["rule"] for entry in entries)
        write_table(target, table, AUDITED, stamp | {"rules": rules})
        target.chmod(0o600)
        for path in (target, target.parent):  # else a power loss may take table and journal
            _force(path)
    journal.unlink()


def _force(path: Path) -> None:
    """Have a file or folder on the disk, not only in its cache."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def redacted(row: Row, redact: Redact) -> Row | None:
    """Return the row as `redact` wants it stored, or None.

    If only the completion was changed, the tokens would still tell it: they are removed, with the
    audits and the LLM's own answer. The id, a digest of the question, is computed again. Raises
    whatever `redact` raises, and ValueError or pa.ArrowException if the row does not fit the schema
    AUDITED.
    """
    changed = redact(deepcopy(row))
    if changed is None:
        return None
    kept = {name: changed[name] for name in AUDITED.names}
    hidden = kept["completion"] != row["completion"]
    if hidden and kept["token_ids"] == row["token_ids"]:
        kept |= {"token_ids": [], "audited": [], "disagreements": []}
    if hidden and kept["reference"] == row["reference"]:
        kept["reference"] = None
    choices = kept["choices"] and [Choice(**each) for each in kept["choices"]]
    messages = kept["messages"] and [Message(**each) for each in kept["messages"]]
    kept["problem_id"] = problem_key(kept["task"], kept["question"], choices, messages)
    table = pa.Table.from_pylist([kept], AUDITED)
    if mismatch := schema_mismatch(table, AUDITED):
        raise ValueError(mismatch)
    return table.cast(AUDITED).to_pylist()[0]  # raises for a null within a row, too


def load_hook(name: str | None) -> Redact:
    """Import `module:function`, also from `.`; without one, keep each row. Raises InputError."""
    if name is None:
        return lambda row: row
    module, _, function = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        hook = getattr(import_module(module), function)
    except (Exception, SystemExit) as error:  # the module is the user's
        reason = f"{type(error).__name__}: {error}"
        raise InputError(f"--redact: {name!r}: {reason}; expected MODULE:FUNCTION") from None
    if not callable(hook):
        raise InputError(f"--redact: {name!r}: not a function")
    return hook


def audited_row(reply: Reply, decode: Decode) -> dict[str, Any]:
    """Return a reply as a row of the schema AUDITED."""
    problem, answer = asdict(reply.problem), reply.answer
    return {name: problem[name] for name in ASKED} | {
        "completion": reply.completion,
        "token_ids": answer.token_ids,
        "truncated": answer.truncated,
        "audited": list(audited_positions(answer.visits)),
        "disagreements": list(_disagreements(answer.visits, decode)),
        "request": reply.request,
        "user": reply.user,
        "reference": reply.reference,
    }


def audited_positions(visits: Sequence[Visit]) -> Iterator[int]:
    """Yield the positions of an answer at which an audit checked a token of the SLM, in order.

    At a rejected token's position stands the LLM's own, and the next visit begins after it. So no
    position is checked twice.
    """
    pending_from = 0
    for visit in visits:
        slms = (n for n in count(pending_from) if n not in visit.copied)
        yield from islice(slms, visit.audited)
        pending_from = visit.kept + 1


def _disagreements(visits: Sequence[Visit], decode: Decode) -> Iterator[dict[str, Any]]:
    for visit in visits:
        for difference in visit.disagreements:
            yield {
                **difference._asdict(),
                "slm_text": decode([difference.slm_token]),
                "llm_text": decode([difference.llm_token]),
                "rejected": difference.position == visit.kept,
            }
