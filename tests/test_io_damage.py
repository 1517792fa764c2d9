"""Tables that changed after they were written, and full disks."""

import errno
import resource
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file

from citer.errors import InputError
from citer.storage import tables as io
from citer.storage.schema import LLM_TOKEN, VERSION
from tests.test_io import table
from tests.test_io_replacing import texts


def test_a_table_of_another_program_is_refused(tmp_path):
    path = tmp_path / "t"
    pq.write_table(table(), path)
    for read in (lambda: io.read_table(path, LLM_TOKEN), lambda: io.table_metadata(path)):
        with pytest.raises(InputError, match=r"not a table that citer wrote$"):
            read()


def rewritten(path, change):
    """Change the table in a file, but keep its metadata and its seal."""
    whole = pq.read_table(path)
    metadata = pq.read_metadata(path).metadata
    kept = {key: metadata[key] for key in (b"citer", b"seal")}
    pq.write_table(change(whole).replace_schema_metadata(kept), path)


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows.take([2, 1, 0]),
        lambda rows: pa.concat_tables([rows, rows]),
        lambda rows: rows.slice(0, 0),
    ],
    ids=["reversed", "doubled", "empty"],
)
def test_a_table_that_was_changed_after_it_was_written_is_refused(tmp_path, change):
    path = tmp_path / "t"
    io.write_table(path, table(), LLM_TOKEN, {})
    rewritten(path, change)
    for read in (lambda: io.read_table(path, LLM_TOKEN), lambda: io.table_metadata(path)):
        with pytest.raises(InputError, match=f"^{path}: damaged, or changed since citer wrote it"):
            read()


def test_a_change_of_any_byte_of_a_table_is_detected(tmp_path):
    path = tmp_path / "t"
    io.write_table(path, table(), LLM_TOKEN, {"seed": 3})
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        with pytest.raises(InputError, match=f"^{path}: (damaged|not a table)"):
            io.read_table(path, LLM_TOKEN)


def test_a_table_of_another_version_is_refused(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("citer.storage.schema.VERSION", VERSION - 1)
        io.write_table(tmp_path / "t", table(), LLM_TOKEN, {})
    with pytest.raises(InputError, match=f"schema version {VERSION - 1}, expected {VERSION}"):
        io.table_metadata(tmp_path / "t")


@contextmanager
def full_disk():
    """Limit files to 100 bytes. A writer notices the limit as late as it would a full disk."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


@pytest.mark.parametrize(
    "write",
    [
        lambda path: io.write_text(path, "x" * 1000),
        lambda path: io.write_table(path, table(), LLM_TOKEN, {}),
        lambda path: write_tensors(path, save_file),
        lambda path: write_tensors(path, torch.save),
    ],
    ids=["text", "table", "tensors", "pickled"],
)
def test_a_full_disk_is_reported_with_the_file_and_leaves_the_old_one(tmp_path, write):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(OSError, match=r"too large|No space left") as caught, full_disk():
        write(path)
    assert caught.value.errno in (errno.EFBIG, errno.ENOSPC)
    assert caught.value.filename == str(path)
    assert texts(tmp_path) == {"file": "old"}


def write_tensors(path, save):
    with io.replacing(path) as aside:
        save({"a": torch.zeros(10_000)}, aside)
