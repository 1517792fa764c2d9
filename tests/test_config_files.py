"""Files that are no params.yaml are refused in one line."""

import os

import pytest
from dvc.utils.serialize import YAMLFileCorruptedError, load_yaml

from citer.errors import LONGEST
from tests.test_config import complaint, complaints


@pytest.mark.parametrize("text", ["", "[]", "5"])
def test_a_file_without_sections_is_refused(tmp_path, text):
    path = tmp_path / "params.yaml"
    path.write_text(text)
    assert complaint(path).endswith("expected a section of keys")


def folder(path):
    path.mkdir()


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (folder, "not a file, expected one"),
        (os.mkfifo, "not a file, expected one"),
        (lambda path: path.symlink_to("/dev/zero"), "not a file, expected one"),
        (lambda path: path.write_bytes(b"pair: \xff"), "not UTF-8 text: invalid start byte at 6"),
    ],
    ids=["folder", "fifo", "device", "latin-1"],
)
def test_a_params_file_must_be_text(tmp_path, make, expected):
    make(tmp_path / "params.yaml")
    assert complaint(tmp_path / "params.yaml") == f": {expected}"


def test_a_huge_value_is_abbreviated(tmp_path):
    """Ten nested lists: each holds the one before ten times."""
    lists = [f"- &a{n} [{f'*a{n - 1}, ' * 10}]" for n in range(1, 11)]
    (tmp_path / "params.yaml").write_text("\n".join(["iterations:", "- &a0 [x, x]", *lists]))
    lines = complaints(tmp_path / "params.yaml")
    assert [line for line in lines if line.startswith("iterations: [['x', 'x'], [['x', 'x'], ")]
    assert all(len(line) < LONGEST for line in lines)


def test_what_dvc_cannot_read_is_refused_at_once(tmp_path):
    """YAML 1.2 allows this colon, but DVC's parser does not, so a run would fail at its start."""
    path = tmp_path / "params.yaml"
    path.write_text("prepare:\n  train: [{path: rows.jsonl, task: python:mine.py:Mine}]\n")
    assert complaint(path) == ":2:42: not YAML: found unexpected ':'"
    with pytest.raises(YAMLFileCorruptedError):
        load_yaml(str(path))
