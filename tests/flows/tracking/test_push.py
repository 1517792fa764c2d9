"""A champion's data are on DVC's remote before the alias moves."""

import re
import shutil
from contextlib import nullcontext
from pathlib import Path

import pytest

from citer.errors import InputError, TemporaryError
from citer.stages import paths
from flows import dvc_commands
from flows.dvc_commands import check_remote, dvc, push
from tests.flows.project import register, retrain
from tests.flows.tracking.registered import holder, version, versions

pytestmark = pytest.mark.slow


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


def test_outputs_that_the_cache_lacks_fail_a_push_of_the_whole(
    project: Path, tmp_path: Path
) -> None:
    """DVC warns of them, and exits with 0."""
    retrain(1)
    dvc("commit", "--force")
    shutil.rmtree(".dvc/cache/files")
    remote(tmp_path / "remote")
    push(whole=False)
    with pytest.raises(TemporaryError, match=r"^no new champion, .* Missing cache files: md5: "):
        push(whole=True)


@pytest.mark.parametrize(("url", "missing"), [("gs://citer", True), ("/tmp/data", False)])
def test_the_package_of_a_remote_is_asked_for_before_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, missing: bool
) -> None:
    monkeypatch.setattr(dvc_commands, "find_spec", lambda name: None if name == "dvc_gs" else 1)
    monkeypatch.chdir(tmp_path)
    Path(".dvc").mkdir()
    check_remote()
    Path(".dvc/config").write_text(f"[core]\nremote = far\n['remote \"far\"']\nurl = {url}\n")
    expected = (
        "remote far, gs://citer, needs the extra \"gs\", in a clone of citer: pip install '.[gs]'"
    )
    with pytest.raises(InputError, match=re.escape(expected)) if missing else nullcontext():
        check_remote()


def test_a_configuration_that_dvc_cannot_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(".dvc").mkdir()
    Path(".dvc/config").write_text("[core\n")
    with pytest.raises(InputError, match=r"^dvc: .*config"):
        check_remote()
