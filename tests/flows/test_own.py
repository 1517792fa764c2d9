"""`citer data add`: questions get a `.dvc` file, or one line says why not."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from citer.cli import main as cli
from citer.config.params import load_params
from citer.demo.toy import rows
from citer.errors import InputError
from flows.dvc_commands import dvc
from flows.own import add
from flows.repro import plan
from tests.flows.project import change_params, commit
from tests.served import served, write_served

TRAIN = Path("data/own/train.jsonl")
GIT_ADD = "Commit: git add data/own/train.jsonl.dvc data/own/.gitignore"


def write_rows(path: Path, lines: Sequence[str] | None = None) -> Path:
    given = map(json.dumps, rows("math", 3, 1, part="pipeline")) if lines is None else lines
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(given) + "\n")
    return path


def added(*files: object) -> int:
    return cli.call(["data", "add", *map(str, files)])


def untracked() -> str:
    command = ["git", "status", "--porcelain", "--untracked-files=all", "data/own"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_a_file_from_elsewhere_is_checked_copied_and_named_by_a_dvc_file(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_rows(tmp_path / "train.jsonl")
    assert added(source) == 0
    out = capsys.readouterr().out
    unchecked = "not checked further: params.yaml names no task of this file"
    assert f"{source}: 3 rows, {unchecked}\n{GIT_ADD}\n" in out
    assert f"under prepare: train: [{{path: {TRAIN}, task: TASK}}]" in out
    assert TRAIN.read_bytes() == source.read_bytes()
    assert untracked() == "?? data/own/.gitignore\n?? data/own/train.jsonl.dvc\n"
    assert dvc("status", f"{TRAIN}.dvc") == "Data and pipelines are up to date."


def test_a_file_that_params_yaml_names_is_read_as_its_task(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change_params("prepare", train=[{"path": str(TRAIN), "task": "math"}])
    write_rows(TRAIN)
    assert added(TRAIN) == 0
    out = capsys.readouterr().out
    assert f"{TRAIN}: 3 rows of the task math\n{GIT_ADD}\n" in out
    assert "params.yaml" not in out
    write_rows(TRAIN, ['{"problem": "How many?", "solution": "Seven."}'])
    assert added(TRAIN) == 2
    assert capsys.readouterr().err.startswith(f"citer: {TRAIN}:1: solution: ")


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "own.jsonl:1: row: not JSON: "),
        ("3", "own.jsonl:1: row: 3; expected a JSON object"),
        ("", "own.jsonl: no rows, expected JSON, JSON Lines, Parquet or CSV"),
        (None, "own.jsonl: no such file or folder"),
    ],
)
def test_a_bad_file_is_refused_in_one_line_and_nothing_is_written(
    project: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    line: str | None,
    complaint: str,
) -> None:
    good, bad = write_rows(tmp_path / "good.jsonl"), tmp_path / "own.jsonl"
    if line is not None:
        write_rows(bad, [line])
    assert added(good, bad) == 2
    err = capsys.readouterr().err
    assert complaint in err
    assert err.count("\n") == 1
    assert untracked() == ""


def test_a_file_is_never_overwritten_and_one_in_git_stays_there(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_rows(tmp_path / "train.jsonl")
    write_rows(TRAIN, ['{"mine": 1}'])
    assert added(write_rows(tmp_path / "new.jsonl"), source) == 2
    assert f"{TRAIN}: exists with another content, expected" in capsys.readouterr().err
    assert not Path("data/own/new.jsonl").exists()
    commit(project)
    assert added(TRAIN) == 2
    assert "already tracked by SCM" in capsys.readouterr().err
    twice = write_rows(tmp_path / "other/train.jsonl")
    assert added(source, twice) == 2
    assert "two files of one name" in capsys.readouterr().err
    assert TRAIN.read_text() == '{"mine": 1}\n'
    assert untracked() == ""


def test_a_folder_of_served_answers_is_added_as_a_whole(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "week"
    folder.mkdir()
    assert added(folder) == 2
    assert "no table in it, expected a folder of `citer serve --log`" in capsys.readouterr().err
    write_served(folder / "1.parquet", [served("Why?", token_ids=[5, 6, 8, 0])])
    (folder / ".2.jsonl").write_text("{")  # a server is writing it
    assert added(folder) == 0
    out = capsys.readouterr().out
    assert f"{folder}: 1 served answers\nCommit: git add data/own/week.dvc " in out
    assert "prepare: traffic: [{path: data/own/week, most: 1000}]" in out
    assert [file.name for file in Path("data/own/week").iterdir()] == ["1.parquet"]
    assert added(folder) == 0  # the server goes on writing
    write_served(folder / "1.parquet", [served("Why not?", token_ids=[5, 6, 8, 0])])
    assert added(folder) == 2
    assert "data/own/week: exists with another content" in capsys.readouterr().err
    write_served(folder / "1.parquet", [served("Why?", token_ids=[5, 6, 8, 0])])
    change_params("prepare", traffic=[{"path": "data/own/week/", "most": 9}])
    assert added("data/own/week") == 0
    assert "params.yaml" not in capsys.readouterr().out


@pytest.mark.slow
def test_a_run_refuses_versioned_questions_that_have_changed(project: Path) -> None:
    """But a file without a `.dvc` file may change."""
    write_rows(TRAIN)
    plain = write_rows(Path("data/own/plain.jsonl"))
    add([TRAIN], load_params())
    pointer = Path(f"{TRAIN}.dvc").read_text()
    write_rows(plain, ['{"problem": "Another?"}'])
    assert set(plan()) == {"label@1", "label@2"}
    write_rows(TRAIN, ['{"problem": "Another?"}'])
    said = f"^{TRAIN}: not as it was added; `citer data add {TRAIN}"
    with pytest.raises(InputError, match=said):
        plan()
    assert Path(f"{TRAIN}.dvc").read_text() == pointer
    add([TRAIN], load_params())
    plan()
    TRAIN.unlink()
    with pytest.raises(InputError, match=r"train.jsonl: missing; expected `dvc pull`, or "):
        plan()
