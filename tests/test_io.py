import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from citer import io
from citer.errors import InputError
from citer.schema import LLM_TOKEN, VERSION, slm_token

ROWS = [
    {
        "problem_id": f"p{row}",
        "position": row,
        "gt_token": 7,
        "llm_token": 8,
        "llm_logprob_gt": -0.5,
        "llm_margin": 0.25,
    }
    for row in range(3)
]
FORK = multiprocessing.get_context("fork")


def table(rows=ROWS):
    return pa.Table.from_pylist(rows, schema=LLM_TOKEN)


def test_table_comes_back_with_its_metadata(tmp_path):
    path = tmp_path / "deep" / "tokens.parquet"
    io.write_table(path, table(), LLM_TOKEN, {"seed": 3})
    assert io.read_table(path, LLM_TOKEN).to_pylist() == ROWS
    assert io.read_table(path, LLM_TOKEN, ["position"]).column_names == ["position"]
    assert io.table_metadata(path) == {"schema_version": VERSION, "seed": 3}


def test_same_content_gives_same_bytes(tmp_path):
    for name, metadata in (("a", {"x": 1, "y": 2}), ("b", {"y": 2, "x": 1})):
        io.write_table(tmp_path / name, table(), LLM_TOKEN, metadata)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_hidden_states_come_back_bit_for_bit(tmp_path):
    schema = slm_token(2)
    row = {
        "problem_id": "p",
        "position": 0,
        "gt_token": 1,
        "slm_token": 1,
        "slm_logprob_gt": -1.0,
        "slm_margin": 0.0,
        "slm_entropy": 1.0,
        "slm_top_logprobs": [0.0] * 8,
        "slm_hidden": b"\x00\x3c\x00\xc0",
    }
    io.write_table(tmp_path / "t", pa.Table.from_pylist([row], schema=schema), schema, {})
    assert io.read_table(tmp_path / "t", schema).to_pylist() == [row]
    with pytest.raises(InputError, match="slm_hidden is fixed_size_binary"):
        io.read_table(tmp_path / "t", slm_token(4))


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        (table().drop_columns("llm_margin"), "columns are"),
        (
            table().set_column(1, "position", pa.array([0, 1, 2])),
            "column position is int64, expected int32",
        ),
        (
            table().set_column(3, "llm_token", pa.array([1, None, 3], pa.int32())),
            "column llm_token has 1 nulls, expected none",
        ),
    ],
)
def test_another_schema_is_refused_on_writing_and_on_reading(tmp_path, wrong, expected):
    path = tmp_path / "t"
    with pytest.raises(AssertionError, match=expected):
        io.write_table(path, wrong, LLM_TOKEN, {})
    assert not path.exists()
    io.write_table(path, wrong, wrong.schema, {})
    with pytest.raises(InputError, match=expected):
        io.read_table(path, LLM_TOKEN)


@pytest.mark.parametrize("content", [b"", b"hello", b"PAR1 torn in the middle PAR1"])
def test_a_torn_table_is_refused_in_one_line(tmp_path, content):
    path = tmp_path / "t"
    path.write_bytes(content)
    for read in (lambda: io.read_table(path, LLM_TOKEN), lambda: io.table_metadata(path)):
        with pytest.raises(InputError, match=f"^{path}: not a table that citer wrote$"):
            read()


def test_a_missing_table_is_refused(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        io.read_table(tmp_path / "t", LLM_TOKEN)
    with pytest.raises(InputError, match="no such file"):
        io.table_metadata(tmp_path / "t")


def test_a_missing_column_is_refused_in_one_line(tmp_path):
    path = tmp_path / "t"
    io.write_table(path, pa.table({"a": [1]}), pa.schema([("a", pa.int64())]), {})
    with pytest.raises(InputError, match=r"columns are \[\], expected \['position'\]$"):
        io.read_table(path, LLM_TOKEN, ["position"])


def test_what_a_failed_writer_began_leaves_no_trace(tmp_path):
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
        "import os, sys, pathlib; from citer.io import replacing\n"
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
    """For a process of its own, which dies before its nth change to the disk."""
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
    os._exit(0)  # what other tests left running must not be shut down in a copy of their process


def texts(folder):
    return {file.name: file.read_text() for file in folder.iterdir()}


def test_a_folder_survives_a_kill_at_any_moment(tmp_path):
    """Whole, the old or the new; the next writer puts it back, and cleans up."""
    found = []
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
        found.append(texts(path)["a"])
        assert list(path.parent.iterdir()) == [path]
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
    renamed = found.index("new")
    assert found == ["old"] * renamed + ["new"] * (len(found) - renamed)
    assert renamed > 1  # after the old one's renaming too
    assert len(found) > renamed + 3  # and while it is removed


def test_a_file_never_takes_the_place_of_a_folder(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/thesis").write_text("years of work")
    for write in (lambda path: io.write_text(path, "answers"), io.check_target):
        with pytest.raises(InputError, match="folder: not a file, expected one or nothing"):
            write(tmp_path / "folder")
    assert texts(tmp_path / "folder") == {"thesis": "years of work"}
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("path", ["", ".", "/", "/proc/x", "file/x", "x" * 250, "x" * 5000])
def test_a_place_where_nothing_can_be_written_is_told_beforehand(tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    Path("file").write_text("")
    with pytest.raises(InputError, match=r"^[^\n]*: (not a file|cannot be written: )[^\n]*$"):
        io.check_target(Path(path))
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_a_place_that_can_be_written_is_left_as_it_is(tmp_path):
    (tmp_path / "file").write_text("old")
    for name in ("file", "deep/new"):
        io.check_target(tmp_path / name)
    assert (tmp_path / "file").read_text() == "old"
    assert not list((tmp_path / "deep").iterdir())


def test_json_comes_back_and_bad_json_is_refused(tmp_path):
    path = tmp_path / "x.json"
    io.write_json(path, {"τ": [0.1, None]})
    assert io.read_json(path) == {"τ": [0.1, None]}
    with pytest.raises(ValueError, match="not JSON compliant"):
        io.write_json(path, {"τ": float("nan")})
    assert io.read_json(path) == {"τ": [0.1, None]}
    path.write_text("{")
    with pytest.raises(InputError, match="not JSON"):
        io.read_json(path)
    with pytest.raises(InputError, match="no such file"):
        io.read_json(tmp_path / "y.json")


@pytest.mark.parametrize(
    "text", ["NaN", "-Infinity", "1e999", '"nan"', '"\\ud83d"', '{"\\ud83d": 1}']
)
def test_json_that_could_not_be_written_again_is_not_read_as_anything(tmp_path, text):
    (tmp_path / "x.json").write_text(f'{{"a": {text}}}')
    with pytest.raises(InputError, match=r"x\.json: "):
        io.read_as(tmp_path / "x.json", dict[str, float | dict[str, int]])


def test_digest_follows_content_and_names_and_nothing_else(tmp_path):
    def folder(name, **files):
        home = tmp_path / name
        home.mkdir()
        for file, text in files.items():
            (home / file).write_text(text)
        return io.digest(home)

    assert folder("one", a="x", b="y") == folder("two", b="y", a="x")
    different = [folder("3", a="x"), folder("4", b="x"), folder("5", a="y"), folder("6", a="xb")]
    boundaries = [
        folder("7", a="b", c=""),
        folder("8", a="bc"),
        io.digest("ab"),
        io.digest("a", "b"),
    ]
    assert len({*different, *boundaries}) == 8


def test_unfinished_work_is_kept_for_the_same_inputs_only(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (io.partial_dir("label", "one") / "shard").write_text("done")
    other = io.partial_dir("train", "one")
    assert (io.partial_dir("label", "one") / "shard").read_text() == "done"
    assert not list(io.partial_dir("label", "two").iterdir())
    assert not list(io.partial_dir("label", "one").iterdir())
    assert other.is_dir()
