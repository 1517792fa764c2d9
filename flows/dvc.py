"""DVC's commands other than `repro`, and the two files that say what its data are."""

import subprocess
import sys
from pathlib import Path

LOCK, PARAMS = Path("dvc.lock"), Path("params.yaml")


class DvcError(RuntimeError):
    """What DVC said when it could not do it, in one line."""


def dvc(*arguments: str) -> str:
    """Run `dvc ARGUMENTS` to its end; returns what it printed. Raises DvcError."""
    command = [sys.executable, "-m", "dvc", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise DvcError(f"dvc {' '.join(arguments)}: {' '.join(done.stderr.split())}")
    return done.stdout.strip()


def has_remote() -> bool:
    """Whether there is a default remote to push to and pull from."""
    return bool(dvc("config", "core.remote"))
