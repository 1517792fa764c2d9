"""Run A, run B, then restore A, in a real DVC repository: preferences and versioned questions."""

import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterable
from pathlib import Path

import pytest

from citer.config.params import load_params
from citer.errors import InputError, TemporaryError
from citer.stages import paths
from flows.dvc_commands import dvc
from flows.own import add
from flows.tracking import contents
from flows.tracking.registry import find_version, run_of
from flows.tracking.restore import restore
from flows.tracking.store import open_store
from tests.flows.project import enter, register, retrain

pytestmark = pytest.mark.slow

QUESTIONS, MORE = Path("data/own/questions.jsonl"), Path("data/own/more.jsonl")
PREFERENCES = [paths.preferences(k) for k in (1, 2)]
STATE = [Path("params.yaml"), Path("dvc.lock"), *PREFERENCES]
A, B = 2, 4  # versions of the last routers

State = dict[Path, bytes]
Runs = tuple[State, State]


def write(path: Path, text: str) -> None:
    """Write a question, and add it in the place of an earlier one."""
    path.unlink(missing_ok=True)
    path.write_text(f'{{"problem": "{text}?"}}\n')
    add([path], load_params())


def read(files: Iterable[Path]) -> State:
    return {file: file.read_bytes() for file in files}


def own() -> State:
    return read(Path("data/own").iterdir())


def present() -> State:
    """Return the bytes that a restore must reproduce."""
    return own() | read(STATE)


def run(seed: int) -> State:
    """Retrain and register; return what is then present."""
    retrain(seed)
    params = Path("params.yaml")
    params.write_text(re.sub("holdout: .*", f"holdout: 0.{seed}", params.read_text()))
    Path("dvc.lock").unlink()
    dvc("commit", "--force")
    register()
    return present()


@pytest.fixture(scope="module")
def rerun(finetuned: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Runs]:
    """A project in which A ran, with a file of questions; then B, with it changed and another.

    Its copies share its MLflow artifacts.
    """
    folder = tmp_path_factory.mktemp("rerun") / "project"
    with pytest.MonkeyPatch.context() as patch:
        enter(finetuned, folder, patch)
        write(QUESTIONS, "One")
        a = run(1)
        write(QUESTIONS, "Another")
        write(MORE, "More")
        b = run(2)
    assert all(a[file] != b[file] for file in STATE)
    return folder, (a, b)


@pytest.fixture
def runs(rerun: tuple[Path, Runs], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    """Enter a copy; return what was present after A and after B."""
    folder, states = rerun
    enter(folder, tmp_path / "project", monkeypatch)
    return states


def drop_from_cache(texts: Collection[bytes]) -> None:
    """Remove what has one of these texts from DVC's cache."""
    for cached in Path(".dvc/cache/files").rglob("*"):
        if cached.is_file() and any(text in cached.read_bytes() for text in texts):
            cached.unlink()


def test_a_version_comes_back_byte_for_byte_and_the_printed_command_undoes_it(
    runs: Runs, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = runs
    assert a.keys() < b.keys()
    Path("params.yaml").write_text(b[Path("params.yaml")].decode() + "# not committed\n")
    before = present()
    restore(A)
    assert present() == a
    assert dvc("status") == "Data and pipelines are up to date."
    undo = capsys.readouterr().out.partition("To go back: ")[2]
    assert undo.startswith("cp -r mlruns/before-restore/")
    subprocess.run(undo.replace("dvc", f"{sys.executable} -m dvc"), shell=True, check=True)
    assert present() == before
    restore(A)
    capsys.readouterr()
    restore(B)
    assert present() == b
    undo = capsys.readouterr().out.partition("To go back: ")[2]
    assert undo.startswith("rm data/own/more.jsonl.dvc && cp -r ")


def test_another_machine_pulls_what_each_registration_pushed(project: Path, tmp_path: Path) -> None:
    dvc("remote", "add", "--default", "backup", str(tmp_path / "remote"))
    write(QUESTIONS, "One")
    a = run(1)
    write(QUESTIONS, "Another")
    run(2)
    for folder in (".dvc/cache", "data/preferences"):
        shutil.rmtree(folder)
    QUESTIONS.unlink()
    restore(A)
    assert present() == a


def test_a_version_whose_data_are_lost_leaves_everything_unchanged(runs: Runs) -> None:
    a, b = runs
    drop_from_cache([a[file] for file in PREFERENCES])
    with pytest.raises(InputError, match="neither in DVC's cache nor on its remote"):
        restore(A)
    assert present() == b


def test_a_file_changed_by_hand_is_never_overwritten(runs: Runs) -> None:
    mine = PREFERENCES[0]
    mine.unlink()  # DVC may have linked it to its cache
    mine.write_text("mine")
    before = present()
    with pytest.raises(InputError, match="unsaved"):
        restore(A)
    assert present() == before


def test_an_unexpected_error_leaves_everything_unchanged_and_names_the_copy(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: object) -> None:
        raise KeyboardInterrupt

    _, b = runs
    monkeypatch.setattr("flows.tracking.restore._check_preferences", fail)
    with pytest.raises(KeyboardInterrupt):
        restore(A)
    assert present() == b
    assert re.search("kept in mlruns/before-restore/[0-9a-f]{12}", capsys.readouterr().out)


def test_what_a_kill_left_of_a_run_does_not_matter(runs: Runs) -> None:
    store = open_store("citer")
    parent = run_of(find_version(store.client, "citer-router", A)).data.tags["mlflow.parentRunId"]
    half = {"mlflow.parentRunId": parent, "iteration": "1"}
    store.client.delete_run(store.client.create_run(store.experiment_id, tags=half).info.run_id)
    restore(A)
    assert present() == runs[0]


def test_an_unknown_version_is_refused_before_anything_moves(runs: Runs) -> None:
    before = present()
    with pytest.raises(InputError, match="no version 9"):
        restore(9)
    assert present() == before


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


def test_questions_that_are_lost_or_changed_by_hand_leave_everything_unchanged(runs: Runs) -> None:
    before = present()
    QUESTIONS.write_text("mine\n")
    with pytest.raises(InputError, match=f"{QUESTIONS}: not as it was added; `citer da"):
        restore(A)
    assert present() == before | {QUESTIONS: b"mine\n"}
    QUESTIONS.write_bytes(before[QUESTIONS])
    drop_from_cache([b"One"])
    with pytest.raises(InputError, match=f"{QUESTIONS} is neither in DVC's cache nor on its remo"):
        restore(A)
    assert present() == before


def test_the_present_state_comes_back_also_if_dvc_fails_again(
    runs: Runs, monkeypatch: pytest.MonkeyPatch
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
