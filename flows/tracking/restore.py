"""Restore, byte for byte, the data that a registered version was made from."""

import shlex
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import mlflow
from mlflow.entities import Run, ViewType

from citer.config.params import load_params
from citer.errors import InputError, TemporaryError
from citer.progress import say
from citer.stages import paths
from citer.storage.tables import digest, remove, replacing
from flows.dvc_commands import LOCK, PARAMS, dvc, file_md5, has_remote, locked
from flows.own import check_unchanged, differing, named, versioned
from flows.repro import LOCK as ONE_AT_A_TIME
from flows.tracking.contents import PIPELINE, Iteration, children
from flows.tracking.describe import origin
from flows.tracking.registry import find_version, run_of
from flows.tracking.store import Store, home, open_store, reported


@reported()
def restore(version: int) -> None:
    """Restore params.yaml, dvc.lock and the data that they name to those of `version`.

    The questions that were versioned come back, too. A copy of the present state is kept. Raises
    InputError, and puts the present state back, if questions or preference tables are neither in
    DVC's cache nor on its remote, or if DVC would overwrite a file that was changed by hand.
    """
    section = load_params().register_
    store = open_store(section.experiment)
    made = run_of(find_version(store.client, section.model_name, version))
    with locked(ONE_AT_A_TIME, "another run in this folder", say):
        _restore(version, store, made)


def _restore(version: int, store: Store, made: Run) -> None:
    parent = made.data.tags["mlflow.parentRunId"]
    check_unchanged()
    before = _keep()
    say(f"The present state is kept in {before}.")
    with TemporaryDirectory() as folder:
        state = f"runs:/{parent}/{PIPELINE}"
        wanted = Path(mlflow.artifacts.download_artifacts(state, dst_path=folder))
        try:
            _check_out(wanted, before)
            for run in children(store, parent, ViewType.ALL):  # a version may use a deleted one
                _check_preferences(run)
        except BaseException as error:
            with suppress(TemporaryError):  # the files that it refuses to overwrite are unchanged
                _put(before)
                dvc("checkout", "--allow-missing", *map(str, named(versioned())))
                dvc("checkout", "--allow-missing")
            if not isinstance(error, InputError):
                raise
            what = f"version {version}, made at git commit {origin(made)['commit']}"
            raise InputError(f"{what}, is not restored: {error}") from None
    _explain(version, made, before)


def _check_out(wanted: Path, before: Path) -> None:
    """Check out the data of the version whose state is in `wanted`.

    Raises TemporaryError, or InputError if a question of the version does not come back.
    """
    questions = versioned(wanted)
    if not questions:  # it had none: those stay that are there
        _copy(versioned(before), before, wanted)
    _put(wanted)
    dvc("pull" if has_remote() else "checkout", "--allow-missing")
    for place in differing(questions):
        raise InputError(f"{place} is neither in DVC's cache nor on its remote")


def _keep() -> Path:
    """Copy the present state to a folder named by its digest; return the folder."""
    present = _state()
    folder = home() / "before-restore" / digest(*present)[:12]
    with replacing(folder) as aside:
        aside.mkdir()
        _copy(present, Path(), aside)
    return folder


def _state(folder: Path = Path()) -> list[Path]:
    """List the files from which the data are restored, relative to `folder`."""
    return [file for file in (PARAMS, LOCK, *versioned(folder)) if (folder / file).exists()]


def _put(wanted: Path) -> None:
    """Replace the present state by the files of `wanted`.

    A file missing there is removed, and with a `.dvc` file the question that DVC's cache has.
    """
    gone = {*_state()} - {*_state(wanted)}
    _copy(_state(wanted), wanted, Path())  # first: below, DVC may fail
    for file in {*named(gone)} - {*differing(gone)}:
        remove(file)
    for file in gone:
        file.unlink()


def _copy(files: Sequence[Path], source: Path, target: Path) -> None:
    for file in files:
        with replacing(target / file) as aside:
            shutil.copy(source / file, aside)


def _check_preferences(run: Run) -> None:
    """Raise InputError if the table that trained the run differs now."""
    file = Iteration(int(run.data.tags["iteration"])).learnt
    assert run.inputs
    recorded = {used.dataset.name: used.dataset.digest for used in run.inputs.dataset_inputs}
    if not file.exists() or file_md5(file) != recorded[file.as_posix()]:
        raise InputError(f"{file} is neither in DVC's cache nor on its remote")


def _explain(version: int, made: Run, before: Path) -> None:
    new = sorted({*_state()} - {*_state(before)})
    undo = [f"rm {shlex.join(map(str, new))}"] if new else []
    undo += [f"cp -r {before}/. .", "dvc checkout"]
    say(
        f"Version {version} restored: params.yaml, dvc.lock and the data that they name are now "
        "those from which it was made.\n"
        f"The code is unchanged; that version was made at git commit {origin(made)['commit']}.\n"
        f"{paths.SUMMARY} is unchanged, because git stores it; `dvc repro` writes it again.\n"
        f"To go back: {' && '.join(undo)}"
    )
