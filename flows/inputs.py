"""The inputs of a retraining: which of them are not committed, and how a worktree gets them."""

import os
import shutil
import subprocess
from contextlib import chdir
from os.path import normpath
from pathlib import Path

from dvc.config import Config, merge

from citer.config.params import load_params
from citer.errors import InputError
from citer.stages.paths import CODE, SUMMARY
from flows.dvc_commands import PARAMS, TMP, dvc, has_remote
from flows.own import OWN, check_unchanged

DVC, CACHE = Path(".dvc"), Path(".dvc/cache")
CODE_FOLDERS = ("citer", "flows")
COMMITTED = (*CODE_FOLDERS, ".dvc", ".dvcignore", "dvc.yaml", "data", str(PARAMS))
WRITTEN = (f":!{CODE}", f":!{SUMMARY}")  # by a retraining


def check() -> None:
    """Raise InputError if a worktree would lack changes of the checkout, or the pair."""
    if changed := changes():
        raise InputError(
            f"{', '.join(changed)}: changed but not committed; a retraining in a worktree reads"
            " committed files, so commit them"
        )
    check_unchanged()
    for name, folder in _pair().items():
        if not Path(normpath(folder.absolute())).is_relative_to(Path.cwd()):
            raise InputError(
                f"{PARAMS}: pair.{name}: {folder} leads out of the project, and elsewhere from a"
                " worktree; give an absolute path, or one in the project"
            )


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
    command = ["git", "-C", str(folder), "-c", "core.hooksPath=/dev/null", *arguments]
    env = os.environ | {"GIT_TERMINAL_PROMPT": "0"}  # nobody could answer
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    if done.returncode:
        raise InputError(f"git {arguments[0]}: {done.stderr.strip()}")
    return done.stdout.strip()
