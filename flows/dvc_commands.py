"""Run DVC commands other than `repro`, and take file locks as DVC does."""

import fcntl
import hashlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from dvc.config import Config, ConfigError

from citer.errors import InputError, TemporaryError, with_extra

LOCK, PARAMS = Path("dvc.lock"), Path("params.yaml")
TMP = Path(".dvc/tmp")
DVC_LOCK = TMP / "lock"

OBJECT_STORES = ("s3", "gs", "azure")  # the extras of these names have their packages

Log = Callable[[str], None]


def dvc(*arguments: str, whole: bool = False) -> str:
    """Run `dvc ARGUMENTS` and return what it printed.

    Raises TemporaryError with DVC's message, if `whole` also for files that DVC only says it lacks.
    """
    command = [sys.executable, "-m", "dvc", "--wait-for-lock", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or (whole and "Missing cache files" in done.stderr):
        said, *_ = done.stderr.partition("Having any troubles?")  # of DVC's unexpected errors
        message = " ".join(said.split())
        raise TemporaryError(f"dvc {' '.join(arguments)}: {message}")
    return done.stdout.strip()


def _remote() -> tuple[str, str]:
    """Return the name and the address of DVC's default remote, empty without one.

    Raises InputError if DVC cannot read its configuration.
    """
    try:
        settings = Config(".dvc", validate=False)
    except ConfigError as error:
        raise InputError(f"dvc: {error}") from None
    name = settings["core"].get("remote", "")
    return name, settings["remote"].get(name, {}).get("url", "")


def has_remote() -> bool:
    """Return whether DVC has a default remote."""
    return bool(_remote()[0])


def file_md5(path: Path) -> str:
    """Return the digest that DVC uses for a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "md5").hexdigest()


def check_remote() -> None:
    """Raise InputError if the package for DVC's default remote is missing."""
    name, url = _remote()
    scheme = url.partition("://")[0]
    if scheme in OBJECT_STORES and not find_spec(f"dvc_{scheme}"):
        extra = f'the extra "{scheme}", {with_extra(scheme)}'
        raise InputError(f"DVC's remote {name}, {url}, needs {extra}")


def push(whole: bool) -> None:
    """Push to DVC's default remote, if there is one: the outputs of all stages if `whole`.

    Raises TemporaryError if it fails.
    """
    try:
        if has_remote():
            dvc("push", whole=whole)
    except TemporaryError as error:
        raise TemporaryError(f"no new champion, since the data are not pushed: {error}") from None


@contextmanager
def locked(file: Path, holder: str, log: Log) -> Iterator[None]:
    """Hold a lock file with flock, as DVC does. If it is taken, log `waiting for HOLDER`."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log(f"waiting for {holder}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
