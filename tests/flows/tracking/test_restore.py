"""Run A, run B, then restore A, in a real DVC repository."""

import re
import shutil
from pathlib import Path

import pytest

from citer.errors import InputError
from citer.stages import paths
from flows.dvc_commands import dvc
from flows.tracking.registry import find_version, run_of
from flows.tracking.restore import restore
from flows.tracking.store import open_store
from tests.flows.project import register, retrain

pytestmark = pytest.mark.slow

PREFERENCES = [paths.preferences(k) for k in (1, 2)]
STATE = [Path("params.yaml"), Path("dvc.lock"), *PREFERENCES]
A, B = 2, 4  # versions of the last routers

State = dict[Path, bytes]
Runs = tuple[State, State]


def present() -> State:
    return {file: file.read_bytes() for file in STATE}


def run(seed: int) -> State:
    """Retrain and register; return the bytes that a restore must reproduce."""
    retrain(seed)
    params = Path("params.yaml")
    params.write_text(re.sub("holdout: .*", f"holdout: 0.{seed}", params.read_text()))
    Path("dvc.lock").unlink()
    dvc("commit", "--force")
    register()
    return present()


@pytest.fixture(scope="module")
def rerun(finetuned: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, State, State]:
    """A project in which A ran, then B. Its copies share its MLflow artifacts."""
    folder = tmp_path_factory.mktemp("rerun") / "project"
    shutil.copytree(finetuned, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("MLFLOW_TRACKING_URI", "")
        a, b = run(1), run(2)
    assert all(a[file] != b[file] for file in STATE)
    return folder, a, b


@pytest.fixture
def runs(rerun: tuple[Path, State, State], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    folder, *states = rerun
    shutil.copytree(folder, tmp_path / "project")
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")
    return tuple(states)


def test_the_preferences_of_a_version_are_restored_byte_for_byte(runs: Runs) -> None:
    a, b = runs
    restore(A)
    assert present() == a
    assert dvc("status") == "Data and pipelines are up to date."
    restore(B)
    assert present() == b


def test_the_printed_command_undoes_the_restore(
    runs: Runs, capsys: pytest.CaptureFixture[str]
) -> None:
    _, b = runs
    Path("params.yaml").write_text(b[Path("params.yaml")].decode() + "# not committed\n")
    before = present()
    restore(A)
    (kept,) = re.findall(r"cp -r (\S+)/\. ", capsys.readouterr().out)
    for file in Path(kept).iterdir():
        shutil.copy(file, ".")
    dvc("checkout")
    assert present() == before


def test_a_version_missing_in_the_cache_comes_from_the_remote(
    project: Path, tmp_path: Path
) -> None:
    dvc("remote", "add", "--default", "backup", str(tmp_path / "remote"))
    a = run(1)
    run(2)
    for folder in (".dvc/cache", "data/preferences"):
        shutil.rmtree(folder)
    restore(A)
    assert present() == a


def test_a_version_whose_data_are_lost_leaves_everything_unchanged(runs: Runs) -> None:
    _, b = runs
    lost = {runs[0][file] for file in PREFERENCES}
    for cached in Path(".dvc/cache/files").rglob("*"):
        if cached.is_file() and cached.read_bytes() in lost:
            cached.unlink()
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
