"""A champion's data are on DVC's remote before the alias moves."""

import shutil
from pathlib import Path

import pytest

from citer.errors import TemporaryError
from citer.stages import paths
from flows.dvc_commands import dvc
from tests.flows.project import register, retrain
from tests.flows.registered import holder, version, versions


def remote(folder: Path) -> None:
    dvc("remote", "add", "--force", "--default", "backup", str(folder))


def test_a_push_that_fails_leaves_the_champion_and_the_next_run_completes_it(
    project: Path, tmp_path: Path
) -> None:
    retrain(1)
    dvc("commit", "--force")
    register()
    assert holder("champion") == 2
    (tmp_path / "file").write_text("no folder")
    remote(tmp_path / "file")
    retrain(2, correct=200, cost=0.3)
    Path("dvc.lock").unlink()
    dvc("commit", "--force")
    for _ in range(2):
        with pytest.raises(TemporaryError, match="no new champion, since the data are not pushed"):
            register()
        assert (versions(), holder("champion"), holder("challenger")) == ([1, 2, 3, 4], 2, 2)
        assert "decision" not in version(4).tags
    remote(tmp_path / "remote")
    assert "version 4 promoted" in register()
    assert (versions(), holder("champion"), holder("challenger")) == ([1, 2, 3, 4], 4, 4)
    trained = paths.preferences(2).read_bytes()
    for folder in (".dvc/cache", "data/preferences"):
        shutil.rmtree(folder)
    dvc("pull")
    assert paths.preferences(2).read_bytes() == trained
