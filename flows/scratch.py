"""A run's own place for temporary files: what a killed process leaves there goes with the run."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree

import psutil

NAME = "citer-run-"  # and the process that made it


@contextmanager
def scratch() -> Iterator[Path]:
    """Yield an empty folder, removed at the end; also those of runs that were killed are."""
    home = Path(tempfile.gettempdir())
    folder = home / f"{NAME}{os.getpid()}"
    for old in home.glob(f"{NAME}*"):
        if old == folder or not psutil.pid_exists(int(old.name.removeprefix(NAME))):
            rmtree(old, ignore_errors=True)  # another user's stays
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        rmtree(folder, ignore_errors=True)
