"""Restore, byte for byte, the data that a registered version was made from."""

import shutil
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import mlflow
from mlflow.entities import Run
from rich.console import Console

from citer.config import load_params
from citer.errors import InputError
from citer.io import digest, replacing
from citer.stages import paths
from flows.dvc_commands import LOCK, PARAMS, DvcError, dvc, file_md5, has_remote
from flows.reach import reported
from flows.registry import find_version, run_of
from flows.store import home, open_store
from flows.tracking import PIPELINE, children

STATE = (PARAMS, LOCK)


@reported()
def restore(version: int) -> None:
    """Restore params.yaml, dvc.lock and the data that they name to those of `version`.

    A copy of the present state is kept. Raises InputError, and puts the present state back, if the
    preference tables are neither in DVC's cache nor on its remote, or if DVC would overwrite a
    file that was changed by hand.
    """
    section = load_params().register_
    store = open_store(section.experiment)
    made = run_of(find_version(store.client, section.model_name, version))
    parent = made.data.tags["mlflow.parentRunId"]
    before = _keep()
    with TemporaryDirectory() as folder:
        wanted = Path(
            mlflow.artifacts.download_artifacts(f"runs:/{parent}/{PIPELINE}", dst_path=folder)
        )
        try:
            _put(wanted)
            dvc("pull" if has_remote() else "checkout", "--allow-missing")
            for run in children(store, parent):
                _check_preferences(run)
        except (DvcError, InputError) as error:
            _put(before)
            with suppress(DvcError):  # the files that it refuses to overwrite are unchanged
                dvc("checkout", "--allow-missing")
            sha = made.data.tags["git_sha"][:12]
            raise InputError(f"version {version}, by git {sha}, is not restored: {error}") from None
    _explain(version, made, before)


def _keep() -> Path:
    """Copy the present state to a folder named by its digest; return the folder."""
    present = [file for file in STATE if file.exists()]
    folder = home() / "before-restore" / digest(*present)[:12]
    with replacing(folder) as aside:
        aside.mkdir()
        for file in present:
            shutil.copy(file, aside)
    return folder


def _put(folder: Path) -> None:
    """Replace the present state by the files of `folder`. A file missing there is removed."""
    for file in STATE:
        if not (folder / file).exists():
            file.unlink(missing_ok=True)
            continue
        with replacing(file) as aside:
            shutil.copy(folder / file, aside)


def _check_preferences(run: Run) -> None:
    """Raise InputError if the preference table differs from the table that trained the run."""
    file = paths.preferences(int(run.data.tags["iteration"]))
    assert run.inputs
    recorded = {used.dataset.name: used.dataset.digest for used in run.inputs.dataset_inputs}
    if not file.exists() or file_md5(file) != recorded[file.as_posix()]:
        raise InputError(f"{file} is neither in DVC's cache nor on its remote")


def _explain(version: int, made: Run, before: Path) -> None:
    tags = made.data.tags
    Console().print(
        f"Version {version} restored: params.yaml, dvc.lock and the data that they name are now "
        f"those of retraining {tags['retraining'][:7]}.\n"
        f"The code is unchanged; git commit {tags['git_sha'][:12]} made that version.\n"
        f"{paths.SUMMARY} is unchanged, because git stores it; `dvc repro` writes it again.\n"
        f"To go back: cp {before}/* . && dvc checkout",
        highlight=False,
        soft_wrap=True,
    )
