"""A retraining in a git worktree: real git and DVC, and a retraining that only writes files."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from citer.errors import InputError
from citer.stages.paths import CODE, SUMMARY
from citer.storage.tables import write_text
from flows.dvc_commands import LOCK, dvc
from flows.tracking.store import home
from flows.worktree import git, in_worktree
from tests.flows.project import commit

QUESTIONS = Path("data/own/questions.jsonl")


def writing(text: str) -> Callable[[], str]:
    """Return a retraining whose results are `text`."""

    def retrain() -> str:
        for file in (LOCK, CODE, SUMMARY / "table.md"):
            write_text(file, f"{text}\n")
        write_text(Path("data/models/slm/weights"), "not for git")
        return "version 1 promoted"

    return retrain


def failing() -> str:
    write_text(Path("data/.partial/half"), "done")
    raise KeyError("no such stage")


def left_by_a_failure() -> str:
    """Fail in a worktree; return the name of its folder."""
    with pytest.raises(KeyError, match="no such stage"):
        in_worktree(failing, print)
    [left] = worktrees()
    return left


def branches() -> list[str]:
    return git("for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads/retrain").splitlines()


def worktrees() -> list[str]:
    """Return the folders of retrainings, which git and the disk must agree about."""
    known = {Path(line.split()[0]).name for line in git("worktree", "list").splitlines()[1:]}
    on_disk = {folder.name for folder in Path(".retrain").glob("*") if folder.is_dir()}
    assert known == on_disk
    return sorted(known)


def test_a_retraining_leaves_its_results_on_a_branch_and_the_checkout_as_it_was(
    checkout: Path,
) -> None:
    before = git("rev-parse", "HEAD"), sorted(Path().rglob("*.md")), CODE.read_text()
    message = in_worktree(writing("new"), print)
    [branch] = branches()
    assert message == f"version 1 promoted; its results are on branch {branch}"
    assert worktrees() == []
    assert git("status", "--porcelain", "--untracked-files=all") == ""
    assert before == (git("rev-parse", "HEAD"), sorted(Path().rglob("*.md")), CODE.read_text())
    committed = git("diff", "--name-only", "HEAD", branch).splitlines()
    assert committed == [str(CODE), str(SUMMARY / "table.md"), str(LOCK)]
    assert git("log", "-1", "--format=%s%n%b", branch) == "Retrain\nversion 1 promoted"
    git("merge", "--quiet", branch)
    assert LOCK.read_text() == "new\n"


def test_stages_run_the_code_of_the_commit(checkout: Path) -> None:
    def retrain() -> str:
        # Like the command `citer`, it does not look for modules in the current folder.
        command = [sys.executable, "-P", "-c", "import citer; print(citer.__file__)"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    module, _, _ = in_worktree(retrain, print).partition("\n")
    assert Path(module).relative_to(checkout).parts[0] == ".retrain"


STAGED = "data/own/more.jsonl.dvc"


@pytest.mark.parametrize(
    "file", ["params.yaml", "dvc.yaml", "flows/new.py", "citer/cli/main.py", STAGED]
)
def test_changes_that_are_not_committed_are_refused(checkout: Path, file: str) -> None:
    with Path(file).open("a") as stream:
        stream.write("# changed\n")
    if file == STAGED:
        git("add", "--force", file)
    with pytest.raises(InputError, match=rf"^{re.escape(file)}: changed but not committed"):
        in_worktree(failing, print)
    assert not worktrees()


def test_results_that_are_not_committed_do_not_matter_and_other_folders_stay(
    checkout: Path,
) -> None:
    writing("by hand")()
    write_text(Path(".retrain/notes/a.md"), "to keep")
    in_worktree(writing("new"), print)
    assert LOCK.read_text() == "by hand\n"
    assert Path(".retrain/notes/a.md").exists()


def test_a_failure_leaves_the_folder_in_which_the_next_retraining_goes_on(checkout: Path) -> None:
    logged: list[str] = []
    with pytest.raises(KeyError, match="no such stage"):
        in_worktree(failing, logged.append)
    [left] = worktrees()
    assert logged[0].startswith(f"retraining in .retrain/{left}, at commit ")
    assert branches() == []
    assert git("status", "--porcelain", "--untracked-files=all") == ""

    def goes_on() -> str:
        assert Path("data/.partial/half").read_text() == "done"
        return writing("new")()

    in_worktree(goes_on, print)
    assert branches() == [f"retrain/{left}"]
    assert worktrees() == []


def test_a_kill_while_git_adds_the_results_does_not_stop_the_next_retraining(
    checkout: Path,
) -> None:
    tree = Path(".retrain", left_by_a_failure())
    Path(git("rev-parse", "--git-path", "index.lock", folder=tree)).touch()
    assert f"retrain/{tree.name}" in in_worktree(writing("new"), print)
    assert worktrees() == []


def test_a_folder_of_another_commit_stays_and_is_named(checkout: Path) -> None:
    left = left_by_a_failure()
    write_text(Path("citer/new.py"), "")
    commit(Path())
    logged: list[str] = []
    in_worktree(writing("new"), logged.append)
    assert worktrees() == [left]
    removal = f"git worktree remove --force .retrain/{left}"
    said = f".retrain/{left} is left from an earlier retraining; to remove it: {removal}"
    assert logged[0] == said
    subprocess.run(removal.split(), check=True)
    assert worktrees() == []


def test_a_folder_whose_code_somebody_has_changed_is_left_to_them(checkout: Path) -> None:
    left = left_by_a_failure()
    write_text(Path(".retrain", left, "citer/cli/main.py"), "print(1)\n")
    in_worktree(writing("new"), print)
    assert worktrees() == [left]


@pytest.mark.parametrize("state", ["half made", "half removed", "gone"])
def test_what_a_kill_left_of_a_folder_is_cleared(checkout: Path, state: str) -> None:
    tree = Path(".retrain", left_by_a_failure())
    if state == "gone":
        subprocess.run(["rm", "-r", tree], check=True)
    elif state == "half removed":
        (tree / ".git").unlink()
    else:
        git("worktree", "move", str(tree), ".retrain/.new")
        git("worktree", "lock", "--reason", "initializing", ".retrain/.new")
    in_worktree(writing("new"), print)
    assert worktrees() == []


def test_a_worktree_that_this_machine_does_not_see_stays_known(checkout: Path) -> None:
    git("worktree", "add", "../mine")
    Path("../mine").rename("../away")  # as in a container that has only the checkout
    in_worktree(writing("new"), print)
    assert "/mine " in git("worktree", "list")


def test_a_dvc_file_may_have_any_name(checkout: Path) -> None:
    Path("data/own/größe.jsonl").write_text("{}")
    dvc("add", "data/own/größe.jsonl")
    commit(checkout)

    def retrain() -> str:
        return Path("data/own/größe.jsonl").read_text()

    assert in_worktree(retrain, print).startswith("{}; ")


def test_retrainings_of_one_minute_have_branches_of_their_own(checkout: Path) -> None:
    for text in ("first", "second", "third"):
        in_worktree(writing(text), print)
    assert worktrees() == []
    kept = {git("show", f"{branch}:{LOCK}") for branch in branches()}
    assert kept == {"first", "second", "third"}


def test_unchanged_results_make_no_branch(checkout: Path) -> None:
    assert "no new branch" in in_worktree(lambda: "nothing new", print)
    assert branches() == []
    assert worktrees() == []


@pytest.fixture
def remote(checkout: Path, tmp_path: Path) -> Path:
    """A bare repository, which is the remote `origin` of the checkout."""
    bare = tmp_path / "remote.git"
    git("clone", "--quiet", "--bare", str(checkout), str(bare))
    git("remote", "add", "origin", str(bare))
    return bare


def test_the_branch_is_pushed_where_the_checkout_pushes_by_default(remote: Path) -> None:
    in_worktree(writing("kept"), print)
    git("config", "remote.pushDefault", "origin")
    message = in_worktree(writing("new"), print)
    [pushed] = git("for-each-ref", "--format=%(refname:lstrip=2)", folder=remote).splitlines()[1:]
    assert message.endswith(f"its results are on branch {pushed}, pushed to origin")
    assert git("show", f"{pushed}:{LOCK}", folder=remote) == "new"


def test_a_branch_that_cannot_be_pushed_stays_and_is_named(remote: Path) -> None:
    git("config", "remote.pushDefault", "origin")
    remote.rename(remote.with_name("away"))
    with pytest.raises(InputError) as error:
        in_worktree(writing("new"), print)
    [branch] = branches()
    said = f"version 1 promoted; branch {branch} is not pushed: git push: "
    assert str(error.value).startswith(said)
    assert worktrees() == []


def test_the_author_is_citer_also_where_git_has_none(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", os.devnull)
    git("config", "user.useConfigOnly", "true")
    in_worktree(writing("new"), print)
    assert git("log", "-1", "--format=%an <%ae>", *branches()) == "citer <citer@localhost>"


def test_a_folder_without_git_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="expected a git repository"):
        in_worktree(failing, print)
    assert not list(tmp_path.iterdir())


def test_the_store_is_that_of_the_checkout(checkout: Path) -> None:
    def retrain() -> str:
        assert home() == checkout / "mlruns"
        return ""

    in_worktree(retrain, print)
    assert home() == Path("mlruns")


def test_a_kill_after_the_branch_was_made_does_not_stop_the_next_retraining(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(tree: Path) -> None:
        if branches():
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("flows.worktree._remove", killed)
        with pytest.raises(KeyboardInterrupt):
            in_worktree(writing("new"), print)
    [branch] = branches()
    commit = git("rev-parse", branch)
    assert branch in in_worktree(writing("new"), print)
    assert (branches(), git("rev-parse", branch)) == ([branch], commit)
    assert worktrees() == []
