"""A folder for the temporary files of one run, removed even if the run was killed."""

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree

import psutil

NAME = re.compile(r"citer-run-(\d+)-.+")  # the number is the pid of the run


@contextmanager
def tempdir() -> Iterator[Path]:
    """Yield an empty folder and remove it at the end. Remove folders of killed runs first."""
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
            rmtree(old, ignore_errors=True)  # fails silently for another user's folder
