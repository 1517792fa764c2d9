"""A run's own place for temporary files: what a killed process leaves there goes with the run."""

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree

import psutil

NAME = re.compile(r"citer-run-(\d+)-.+")  # with the process that made it


@contextmanager
def scratch() -> Iterator[Path]:
    """Yield an empty folder, removed at the end; remove those of runs that were killed, too."""
    _sweep(Path(tempfile.gettempdir()))
    folder = tempfile.mkdtemp(prefix=f"citer-run-{os.getpid()}-")
    try:
        yield Path(folder)
    finally:
        rmtree(folder, ignore_errors=True)


def _sweep(home: Path) -> None:
    for old in home.iterdir():
        named = NAME.fullmatch(old.name)
        if named and (int(named[1]) == os.getpid() or not psutil.pid_exists(int(named[1]))):
            rmtree(old, ignore_errors=True)  # another user's stays
