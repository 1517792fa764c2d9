"""A version brings back the questions that were versioned when it was made."""

import shutil
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

import pytest

from citer.config.params import load_params
from citer.errors import InputError, TemporaryError
from flows.dvc_commands import dvc
from flows.own import add
from flows.tracking import contents
from flows.tracking.restore import restore
from tests.flows.tracking.test_restore import run

pytestmark = pytest.mark.slow

QUESTIONS, MORE = Path("data/own/questions.jsonl"), Path("data/own/more.jsonl")
A, B = 2, 4  # versions of the last routers


def write(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    path.write_text(f'{{"problem": "{text}?"}}\n')
    add([path], load_params())


def own() -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in Path("data/own").iterdir()}


Contents = dict[str, bytes]
Runs = tuple[Contents, Contents]


@pytest.fixture(scope="module")
def ran(finetuned: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Runs]:
    """A project in which A ran, with a file of questions; then B, with it changed and another."""
    folder = tmp_path_factory.mktemp("ran") / "project"
    shutil.copytree(finetuned, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("MLFLOW_TRACKING_URI", "")
        write(QUESTIONS, "One")
        run(1)
        a = own()
        write(QUESTIONS, "Another")
        write(MORE, "More")
        run(2)
        return folder, (a, own())


@pytest.fixture
def twice(ran: tuple[Path, Runs], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    """Enter a copy; return what data/own held in A and in B."""
    shutil.copytree(ran[0], tmp_path / "project")
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")
    return ran[1]


def test_questions_come_back_byte_for_byte_and_the_printed_command_undoes_it(
    twice: Runs, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = twice
    assert a.keys() < b.keys()
    restore(A)
    assert own() == a
    undo = capsys.readouterr().out.partition("To go back: ")[2]
    assert undo.startswith("cp -r mlruns/before-restore/")
    subprocess.run(undo.replace("dvc", f"{sys.executable} -m dvc"), shell=True, check=True)
    assert own() == b
    restore(A)
    capsys.readouterr()
    restore(B)
    assert own() == b
    undo = capsys.readouterr().out.partition("To go back: ")[2]
    assert undo.startswith("rm data/own/more.jsonl.dvc && cp -r ")


def test_a_version_of_before_leaves_the_questions_as_they_are(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(contents, "versioned", list)  # none was versioned
        run(1)
    write(QUESTIONS, "One")
    run(2)
    before = own()
    restore(A)
    assert own() == before


def test_questions_that_are_lost_or_changed_by_hand_leave_everything_unchanged(twice: Runs) -> None:
    before = own()
    QUESTIONS.write_text("mine\n")
    with pytest.raises(InputError, match=f"{QUESTIONS}: not as it was added; `citer da"):
        restore(A)
    assert own() == before | {QUESTIONS.name: b"mine\n"}
    QUESTIONS.write_bytes(before[QUESTIONS.name])
    for cached in Path(".dvc/cache/files").rglob("*"):
        if cached.is_file() and b"One" in cached.read_bytes():
            cached.unlink()
    with pytest.raises(InputError, match=f"{QUESTIONS} is neither in DVC's cache nor on its remo"):
        restore(A)
    assert own() == before


def test_the_present_state_comes_back_also_if_dvc_fails_again(
    twice: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(files: Collection[Path]) -> list[Path]:
        if files:
            raise TemporaryError("dvc status: no")
        return []

    restore(A)
    before = Path(f"{QUESTIONS}.dvc").read_text(), Path("params.yaml").read_text()
    monkeypatch.setattr("flows.tracking.restore.differing", fail)
    with pytest.raises(InputError, match="is not restored: dvc status: no"):
        restore(B)
    assert before == (Path(f"{QUESTIONS}.dvc").read_text(), Path("params.yaml").read_text())


def test_another_machine_pulls_the_questions(twice: Runs, tmp_path: Path) -> None:
    dvc("remote", "add", "--default", "backup", str(tmp_path / "remote"))
    dvc("push")
    restore(A)
    dvc("push")
    for folder in (".dvc/cache", "data/preferences"):
        shutil.rmtree(folder)
    QUESTIONS.unlink()
    restore(A)
    assert own() == twice[0]
