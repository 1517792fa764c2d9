"""DVC's commands other than `repro`, the two files that say what its data are, and its locks."""

import fcntl
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

LOCK, PARAMS = Path("dvc.lock"), Path("params.yaml")
TMP = Path(".dvc/tmp")

Log = Callable[[str], None]


SUPPORT = "Having any troubles?"  # DVC ends an unexpected error with it


class DvcError(RuntimeError):
    """What DVC said when it could not do it, in one line."""


def dvc(*arguments: str) -> str:
    """Run `dvc ARGUMENTS` to its end; returns what it printed. Raises DvcError."""
    command = [sys.executable, "-m", "dvc", "--wait-for-lock", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = " ".join(done.stderr.partition(SUPPORT)[0].split())
        raise DvcError(f"dvc {' '.join(arguments)}: {said}")
    return done.stdout.strip()


def has_remote() -> bool:
    """Whether there is a default remote to push to and pull from."""
    return bool(dvc("config", "core.remote"))


@contextmanager
def locked(file: Path, holder: str, log: Log) -> Iterator[None]:
    """Hold a lock file, as DVC itself holds its own; say for whom we wait where we have to."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            log(f"waiting for {holder}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
