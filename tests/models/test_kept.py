"""Digests of files that are read once, and again whenever the files have changed."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from citer.errors import InputError
from citer.models import weights
from citer.models.folder import ModelFolder
from citer.models.weights import kept_digest
from citer.storage.tables import digest


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Two files, in a world whose clock never shows one time twice; an empty cache."""
    monkeypatch.setattr(weights, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(weights, "QUIET", 0.0)
    paths = [tmp_path / "config.json", tmp_path / "model.safetensors"]
    for path in paths:
        path.write_text(path.name)
    return paths


@pytest.fixture
def unreadable(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    def forbid() -> None:
        def refused(*parts: Path | str) -> str:
            assert all(isinstance(part, str) for part in parts), "a file is read"
            return digest(*parts)

        monkeypatch.setattr(weights, "digest", refused)

    return forbid


def replace(path: Path) -> None:
    """Give a file another content, but its size and mtime."""
    times, aside = path.stat(), path.with_name("aside")
    aside.write_text(path.read_text().upper())
    os.utime(aside, ns=(times.st_atime_ns, times.st_mtime_ns))
    aside.replace(path)


def test_a_model_whose_files_stay_as_they_are_is_read_once(
    files: list[Path], unreadable: Callable[[], None]
) -> None:
    first = ModelFolder(files[0].parent).digest
    assert first == digest(*files)
    unreadable()
    assert ModelFolder(files[0].parent).digest == first
    with pytest.raises(AssertionError, match="a file is read"):
        kept_digest(files[0])


def test_a_changed_file_is_read_again(files: list[Path]) -> None:
    for change in (replace, lambda path: path.write_text("longer than before")):
        before = kept_digest(*files)
        change(files[1])
        assert kept_digest(*files) == digest(*files) != before


def test_nothing_is_kept_of_a_file_that_has_just_changed(
    files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next write may leave the same times."""
    monkeypatch.undo()
    monkeypatch.setattr(weights, "CACHE", files[0].parent / "cache")
    assert kept_digest(*files) == digest(*files)
    assert not weights.CACHE.exists()


@pytest.mark.parametrize("damage", ["", "[]", "{", '{"states": [], "digest": "x"}', "\0"])
def test_a_damaged_cache_is_ignored(files: list[Path], damage: str) -> None:
    kept_digest(*files)
    [entry] = (weights.CACHE / "digests").iterdir()
    entry.write_text(damage)
    assert kept_digest(*files) == digest(*files)
    assert '"digest"' in entry.read_text()


def test_a_cache_that_cannot_be_written_is_ignored(files: list[Path]) -> None:
    weights.CACHE.write_text("a file")
    assert kept_digest(*files) == digest(*files)


def test_a_missing_file_is_named(files: list[Path]) -> None:
    kept_digest(*files)
    files[1].unlink()
    with pytest.raises(InputError, match=r"model\.safetensors: no such file"):
        kept_digest(*files)


def test_a_folder_behind_another_link_is_not_read_again(
    files: list[Path], unreadable: Callable[[], None], tmp_path: Path
) -> None:
    """As behind the temporary folder of each served router."""
    kept = kept_digest(*files)
    unreadable()
    for name in ("one", "two"):
        (tmp_path / name).symlink_to(files[0].parent)
        assert kept_digest(*(tmp_path / name / file.name for file in files)) == kept
    assert len([*(weights.CACHE / "digests").iterdir()]) == 1
