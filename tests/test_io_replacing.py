"""Files and folders are replaced as a whole, whenever the writer is killed."""

import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from citer.errors import InputError
from citer.storage import tables as io

FORK = multiprocessing.get_context("fork")


def test_a_failed_writer_leaves_no_trace(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")

    def write():
        with io.replacing(path) as aside:
            aside.write_text("half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_is_replaced_whole(tmp_path):
    path = tmp_path / "folder"
    for name in ("old", "new"):
        with io.replacing(path) as aside:
            aside.mkdir()
            (aside / name).write_text(name)
    assert [file.name for file in path.iterdir()] == ["new"]
    assert list(tmp_path.iterdir()) == [path]


def test_a_killed_writer_leaves_the_old_file_and_the_next_one_cleans_up(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    program = (
        "import os, sys, pathlib; from citer.storage.tables import replacing\n"
        "with replacing(pathlib.Path(sys.argv[1])) as aside:\n"
        "    aside.write_text('half'); os.kill(os.getpid(), 9)"
    )
    killed = subprocess.run([sys.executable, "-c", program, str(path)])
    assert killed.returncode == -signal.SIGKILL
    assert path.read_text() == "old"
    io.write_text(path, "new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def replace_folder(path, dies_at):
    """Replace a folder in a child process that kills itself before its nth change to the disk."""
    steps = itertools.count(1)

    def deadly(change):
        def step(*args, **options):
            if next(steps) == dies_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return change(*args, **options)

        return step

    for name in ("rename", "replace", "rmdir", "unlink"):
        setattr(os, name, deadly(getattr(os, name)))
    with io.replacing(path) as aside:
        aside.mkdir()
        for name in ("a", "b"):
            (aside / name).write_text("new")
    os._exit(0)  # without exit handlers, which would shut down servers of other tests


def texts(folder):
    return {file.name: file.read_text() for file in folder.iterdir()}


def test_a_folder_survives_a_kill_at_any_moment(tmp_path):
    """The next writer finds the whole old or new folder, and cleans up."""
    survivors = []
    for dies_at in itertools.count(1):
        path = tmp_path / str(dies_at) / "folder"
        path.mkdir(parents=True)
        for name in ("a", "b"):
            (path / name).write_text("old")
        process = FORK.Process(target=replace_folder, args=(path, dies_at))
        process.start()
        process.join()
        with pytest.raises(RuntimeError), io.replacing(path):
            raise RuntimeError
        assert texts(path) in ({"a": "old", "b": "old"}, {"a": "new", "b": "new"})
        survivors.append(texts(path)["a"])
        assert list(path.parent.iterdir()) == [path]
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
    renamed = survivors.index("new")
    assert survivors == ["old"] * renamed + ["new"] * (len(survivors) - renamed)
    assert renamed > 1  # killed also after the old folder was renamed
    assert len(survivors) > renamed + 3  # and while the old folder was being removed


def test_a_file_never_takes_the_place_of_a_folder(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/thesis").write_text("years of work")
    for write in (lambda path: io.write_text(path, "answers"), io.check_target):
        with pytest.raises(InputError, match="folder: not a file, expected a file or nothing"):
            write(tmp_path / "folder")
    assert texts(tmp_path / "folder") == {"thesis": "years of work"}
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("path", ["", ".", "/", "/proc/x", "file/x", "x" * 250, "x" * 5000])
def test_a_path_that_cannot_be_written_is_refused_beforehand(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    with pytest.raises(InputError, match=r"^[^\n]*: (not a file|cannot be written: )[^\n]*$"):
        io.check_target(Path(path))
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_checking_a_path_leaves_a_writer_alone(tmp_path):
    with io.replacing(tmp_path / "file") as aside:
        aside.write_text("new")
        io.check_target(tmp_path / "file")
    assert texts(tmp_path) == {"file": "new"}


def test_checking_a_path_does_not_change_it(tmp_path):
    (tmp_path / "file").write_text("old")
    for name in ("file", "deep/new"):
        io.check_target(tmp_path / name)
    assert (tmp_path / "file").read_text() == "old"
    assert not list((tmp_path / "deep").iterdir())
