"""Run git commands, without the repository's hooks: they are made for people's own commits."""

import os
import subprocess
from pathlib import Path

from citer.errors import InputError


def git(*arguments: str, folder: Path | str = ".") -> str:
    """Run `git ARGUMENTS` in a folder and return what it printed. Raises InputError."""
    command = ["git", "-C", str(folder), "-c", "core.hooksPath=/dev/null", *arguments]
    env = os.environ | {"GIT_TERMINAL_PROMPT": "0"}  # nobody could answer
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    if done.returncode:
        raise InputError(f"git {arguments[0]}: {done.stderr.strip()}")
    return done.stdout.strip()
