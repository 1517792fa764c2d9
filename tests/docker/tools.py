"""Checkers of Docker's and Kubernetes' files, which the extra `dev` installs on Linux."""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "docker"
DOCKERFILES = sorted(DOCKER.glob("*.Dockerfile"))

on_linux = pytest.mark.skipif(
    (platform.system(), platform.machine()) != ("Linux", "x86_64"),
    reason="the packages of hadolint and docker-compose have binaries for Linux on x86-64",
)


def run(*command: str | Path, **env: str) -> str:
    """Run a tool of this environment in the project's folder and return what it prints."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    program = shutil.which(str(command[0]), path=path)
    assert program, f"{command[0]}: not installed; it is part of the extra dev"
    done = subprocess.run(
        [program, *command[1:]], cwd=ROOT, env=os.environ | env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def versions(path: Path) -> dict[str, str]:
    """Return the packages of a constraints file with their versions."""
    lines = [line for line in path.read_text().splitlines() if line and line[0] != "#"]
    return dict(line.lower().replace("_", "-").split("==") for line in lines)
