"""Retrain in a git worktree, so that the checkout, from which routers are served, stays unchanged.

The worktree is `.retrain/DATE` at the checkout's commit. It has its own outputs and `dvc.lock`. It
shares DVC's cache and the MLflow store, and holds the lock of runs in the checkout. A retraining
that succeeds leaves a branch `retrain/DATE`, which is pushed where the checkout pushes by default,
and its folder is removed. The folder of one that failed or was killed stays, and the next
retraining of the same commit goes on there.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, suppress
from datetime import UTC, datetime
from itertools import chain, count
from os.path import normpath
from pathlib import Path

from dvc.config import Config, merge

from citer.config.params import load_params
from citer.errors import InputError
from citer.stages.paths import CODE, SUMMARY
from flows.dvc_commands import LOCK, PARAMS, TMP, Log, dvc, has_remote, locked
from flows.own import OWN, check_unchanged
from flows.repro import LOCK as ONE_AT_A_TIME
from flows.tracking.store import RETRAININGS

BRANCHES = "retrain"
AUTHOR = ("-c", "user.name=citer", "-c", "user.email=citer@localhost")
RESULTS = (LOCK, CODE, SUMMARY)
NAME = re.compile(r"\d{4}-\d\d-\d\d-\d{4}(-\d+)?")  # of a folder; other folders are not touched
HALF_MADE = RETRAININGS / ".new"
DVC, CACHE = Path(".dvc"), Path(".dvc/cache")
CODE_FOLDERS = ("citer", "flows")
COMMITTED = (*CODE_FOLDERS, ".dvc", ".dvcignore", "dvc.yaml", "data", str(PARAMS))
WRITTEN = (f":!{CODE}", f":!{SUMMARY}")  # by a retraining


def in_worktree(retrain: Callable[[], str], log: Log) -> str:
    """Call `retrain` in a worktree, commit its results to a branch, and remove the worktree.

    Returns what `retrain` returned, and the branch. Raises InputError if the checkout has changes
    that are not committed, or if the branch cannot be pushed.
    """
    if not Path(".git").exists():
        raise InputError("worktree: expected a git repository in the current folder")
    with locked(ONE_AT_A_TIME, "another run in this folder", log):
        check()
        commit = git("rev-parse", "HEAD")
        tree = _leftover(commit, log) or _new(commit)
        log(f"retraining in {tree}, at commit {commit[:12]}; if it fails, the next goes on there")
        fill(tree)
        with _entered(tree):
            outcome = retrain()
            branch = _commit(tree.name, outcome)
        _remove(tree)
    if not branch:
        return f"{outcome}; no new branch, because {LOCK} and {SUMMARY} are those of the commit"
    return f"{outcome}; its results are on branch {branch}{_push(branch, outcome)}"


def _leftover(commit: str, log: Log) -> Path | None:
    """Return the newest folder that was left at this commit; log the other ones."""
    found = None
    named = (path for path in RETRAININGS.glob("*") if NAME.fullmatch(path.name))
    for tree in sorted(named, reverse=True):
        if not (tree / ".git").is_file():
            _remove(tree)  # a kill has interrupted its removal
        elif not found and _continues(tree, commit):
            found = tree
        else:
            removal = f"git worktree remove --force {tree}"
            log(f"{tree} is left from an earlier retraining; to remove it: {removal}")
    return found


def _continues(tree: Path, commit: str) -> bool:
    """Return whether a folder is at `commit` and nobody has changed its code or parameters."""
    with suppress(InputError):  # git no longer knows the folder
        return git("rev-parse", "HEAD", folder=tree) == commit and not changes(tree)
    return False


def _new(commit: str) -> Path:
    """Make a folder under another name, then rename it: a kill leaves no half-made one."""
    _remove(HALF_MADE)
    names = chain([now := f"{datetime.now(UTC):%Y-%m-%d-%H%M}"], (f"{now}-{n}" for n in count(2)))
    branches = git("for-each-ref", "--format=%(refname:lstrip=3)", f"refs/heads/{BRANCHES}")
    used = {*branches.split(), *(path.name for path in RETRAININGS.glob("*"))}
    tree = RETRAININGS / next(name for name in names if name not in used)
    git("worktree", "add", "--force", "--force", "--detach", str(HALF_MADE), commit)
    git("worktree", "move", str(HALF_MADE), str(tree))
    return tree


@contextmanager
def _entered(tree: Path) -> Iterator[None]:
    """Work in the folder, with its code for the processes of the stages."""
    before = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(tree.absolute()), before]))
    try:
        with chdir(tree):
            yield
    finally:
        os.environ["PYTHONPATH"] = before


def _commit(name: str, outcome: str) -> str | None:
    """Commit the results of the current folder to a new branch. Return None if they are unchanged.

    The branch appears in one step: a kill leaves no branch, or a complete one, which is kept.
    """
    # A kill of git leaves it, and nobody else commits here.
    Path(git("rev-parse", "--git-path", "index.lock")).unlink(missing_ok=True)
    git("add", "--all", "--", *(str(file) for file in RESULTS if file.exists()))
    files = git("write-tree")
    if files == git("rev-parse", "HEAD^{tree}"):
        return None
    message = f"Retrain\n\n{outcome}"
    branch = f"{BRANCHES}/{name}"
    if git("for-each-ref", "--format=%(tree)", f"refs/heads/{branch}") != files:
        commit = git(*AUTHOR, "commit-tree", files, "-p", "HEAD", "-m", message)
        git("branch", "--force", branch, commit)
    return branch


def _push(branch: str, outcome: str) -> str:
    """Push a branch to the default remote of this checkout; return where. Raises InputError.

    Settings of the user or the machine do not count: they were not made for a schedule.
    """
    remote = git("config", "--local", "--default", "", "--get", "remote.pushDefault")
    if not remote:
        return ""
    try:
        git("push", "--quiet", remote, branch)
    except InputError as error:
        raise InputError(f"{outcome}; branch {branch} is not pushed: {error}") from None
    return f", pushed to {remote}"


def _remove(tree: Path) -> None:
    """Remove a folder. If it is killed, the next retraining completes the removal."""
    (tree / ".git").unlink(missing_ok=True)
    shutil.rmtree(tree, ignore_errors=True)
    # What git stores of them. `git worktree prune` would also forget folders of the user's that
    # this machine does not see.
    records = Path(git("rev-parse", "--git-path", "worktrees"))
    for record in records.glob("*/gitdir"):
        place = (record.parent / record.read_text().strip()).resolve()  # the file .git of a folder
        if place.parents[1] == RETRAININGS.resolve() and not place.exists():
            shutil.rmtree(record.parent)


def check() -> None:
    """Raise InputError if a worktree would lack changes of the checkout, or the pair."""
    if changed := changes():
        needed = "a retraining in a worktree reads committed files, so commit them"
        raise InputError(f"{', '.join(changed)}: changed but not committed; {needed}")
    check_unchanged()
    for name, folder in _pair().items():
        if not Path(normpath(folder.absolute())).is_relative_to(Path.cwd()):
            away = "leads out of the project, and elsewhere from a worktree"
            expected = "give an absolute path, or one in the project"
            raise InputError(f"{PARAMS}: pair.{name}: {folder} {away}; {expected}")


def changes(folder: Path = Path()) -> list[str]:
    """List the files of code, parameters and data that differ from those of the commit."""
    changed = git("diff", "--name-only", "HEAD", "--", *COMMITTED, *WRITTEN, folder=folder)
    new = git("ls-files", "--others", "--exclude-standard", "--", *CODE_FOLDERS, folder=folder)
    return [*changed.splitlines(), *new.splitlines()]


def fill(tree: Path) -> None:
    """Give a worktree DVC's cache and remotes, the questions and the pair of the current folder.

    Can be called again after a kill, and after the questions have changed.
    """
    _configure(tree)
    CACHE.mkdir(parents=True, exist_ok=True)
    _link(CACHE, tree)
    git("clean", "-fdxq", "--", str(OWN), folder=tree)
    if added := git("ls-files", "--", "*.dvc", folder=tree).splitlines():  # what `dvc add` wrote
        with chdir(tree):
            dvc("pull" if has_remote() else "checkout", "--allow-missing", *added)
    _copy_questions(tree)
    for folder in _pair().values():
        _link(folder, tree)


def _pair() -> dict[str, Path]:
    """Return the folders of the pair that lie relative to the project."""
    pair = load_params().pair
    folders = {"slm": Path(pair.slm), "llm": Path(pair.llm)}
    return {name: folder for name, folder in folders.items() if not folder.is_absolute()}


def _configure(tree: Path) -> None:
    """Write DVC's local configuration: all that the checkout has, with relative paths adapted."""
    file = tree / DVC / Config.CONFIG_LOCAL
    file.unlink(missing_ok=True)  # a kill may have torn it
    file.touch(mode=0o600)  # it may hold credentials
    checkout = Config(str(DVC), validate=False)
    with Config(str(tree / DVC), validate=False).edit("local") as local:
        for level in ("repo", "local"):
            merge(local, checkout.load_one(level))
        # DVC's default is a folder in /var/tmp, which would outlive the worktree.
        local["core"]["site_cache_dir"] = str((tree / TMP / "site").absolute())


def _link(folder: Path, tree: Path) -> None:
    """Link a folder of the checkout, unless it came with the commit."""
    if folder.exists() and not os.path.lexists(target := tree / folder):
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(folder.absolute())


def _copy_questions(tree: Path) -> None:
    """Copy the files that neither git nor DVC tracks."""

    def known(folder: str, names: list[str]) -> set[str]:
        return {name for name in names if name.startswith(".") or (tree / folder / name).is_file()}

    shutil.copytree(OWN, tree / OWN, ignore=known, dirs_exist_ok=True)


def git(*arguments: str, folder: Path | str = ".") -> str:
    """Run `git ARGUMENTS` in a folder and return what it printed. Raises InputError.

    The repository's hooks do not run: they are made for people's own commits.
    """
    settings = ("-c", "core.hooksPath=/dev/null", "-c", "core.quotePath=false")
    command = ["git", "-C", str(folder), *settings, *arguments]
    env = os.environ | {"GIT_TERMINAL_PROMPT": "0"}  # nobody could answer
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    if done.returncode:
        raise InputError(f"git {arguments[0]}: {done.stderr.strip()}")
    return done.stdout.strip()
