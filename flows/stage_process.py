"""Do what `dvc repro --single-item STAGE` does, but run the stage's command in this process.

DVC finds out whether the stage is stale, removes or restores its outputs, and records them. It
would start the command in a shell, where Python would import torch and transformers again, and
rewrite `dvc.lock` in place, so that a kill could truncate it.
"""

import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from traceback import print_exc
from typing import Any

import dvc.dvcfile
import dvc.stage.run
from dvc.exceptions import DvcException, ReproductionError
from dvc.lock import LockError
from dvc.repo import Repo
from dvc.stage import Stage
from dvc.utils.serialize import modify_yaml

from citer.cli.main import BAD_INPUT, attempt, refuse, tune_process
from citer.errors import InputError, TemporaryError
from citer.executors.memory import advice
from citer.storage.tables import replacing
from flows.process_tree import KILLED, shell_status, wait_for_end

OURS = re.compile(r"citer( [\w.=-]+)+")  # a command that needs no shell
# The class of an error and its lines. Pickle would join the lines.
Failure = tuple[type[InputError], list[str]]


def run(name: str, environment: Mapping[str, str], output: Connection | None) -> bool | Failure:
    """Bring a stage up to date. What it prints goes to `output`, or else to stderr.

    Returns whether its command had to run, or how it failed.
    """
    os.environ.clear()
    os.environ.update(environment)
    sys.path.insert(0, os.getcwd())  # the code of a worktree comes before that of its checkout
    sys.argv = ["dvc", "repro", name]  # DVC's table of processes shows it
    for stream in (1, 2) if output else (1,):
        os.dup2(output.fileno() if output else 2, stream)
    try:
        return _reproduce(name)
    except InputError as error:
        return type(error), str(error).split("\n")


def _reproduce(name: str) -> bool:
    """Let DVC bring a stage up to date. Return whether its command had to run.

    Raises what a command raises, TemporaryError if DVC fails for a reason that may pass, and
    InputError for its other errors, or if its cache lacks what the command wrote.
    """
    logging.getLogger("dvc").setLevel(logging.WARNING)  # else it gives advice on git and remotes
    ran: list[str] = []
    dvc.stage.run.cmd_run = partial(_run_commands, ran)  # in place of its shell
    dvc.dvcfile.modify_yaml = _modify_aside
    try:
        try:
            with Repo(_wait_for_lock=True) as repo:
                for stage in repo.reproduce(name, single_item=True):
                    _check_cache(stage)
        except ReproductionError as error:
            raise error.__cause__ or error from None
    except LockError as error:
        raise TemporaryError(*str(error).split("\n")) from None
    except (DvcException, FileNotFoundError) as error:
        raise InputError(*str(error).split("\n")) from None
    except OSError as error:
        raise TemporaryError(str(error)) from None
    return bool(ran)


def _check_cache(stage: Stage) -> None:
    """Raise InputError if DVC could not copy an output: it only logs that, and goes on."""
    for lost in (out for out in stage.outs if out.use_cache and out.changed_cache()):
        remedy = f"free disk space, run `dvc commit --force {stage.addressing}`, then `citer run`"
        raise InputError(f"{lost}: not whole in DVC's cache; {remedy}")


@contextmanager
def _modify_aside(file: str, fs: object = None) -> Iterator[dict[str, Any]]:
    """Yield the content of `dvc.lock`, to change it, as DVC's `modify_yaml` does."""
    with replacing(Path(file)) as aside:
        if Path(file).exists():
            shutil.copyfile(file, aside)
        with modify_yaml(aside) as content:
            yield content


def _run_commands(ran: list[str], stage: Stage, dry: bool = False, run_env: object = None) -> None:
    """Run the commands of a stage, as DVC's `cmd_run` does, and add them to `ran`."""
    print(f"Running stage '{stage.addressing}':", file=sys.stderr)
    shell = os.environ.get("SHELL")  # as DVC does
    for command in stage.cmd if isinstance(stage.cmd, list) else stage.cmd.splitlines():
        ran.append(command)
        print(f"> {command}", file=sys.stderr)
        status = 0
        if OURS.fullmatch(command):
            _run_here(stage.addressing, command.split()[1:])
        else:
            status = subprocess.call(command, shell=True, executable=shell)
        wait_for_end()
        if status:
            raise failure(stage.addressing, shell_status(status))


def _run_here(stage: str, arguments: list[str]) -> None:
    """Run a command of `citer`. Raises InputError as it does, TemporaryError if it crashes."""
    tune_process()
    try:
        status, message = attempt(arguments)
    except Exception as error:
        print_exc()
        raise TemporaryError(f"{stage}: {type(error).__name__}: {error}") from None
    if status:
        if message:
            refuse(message, status)
        raise failure(stage, status, message)


def failure(stage: str, status: int, message: str = "") -> InputError:
    """Return the error of a command with this exit status, which printed `message`."""
    if status == KILLED and not message:
        said = "killed (SIGKILL), as Linux does if memory runs out"
        message = f"{stage}: {said}; if it did, {advice(stage)}"
    kind = InputError if status == BAD_INPUT else TemporaryError
    return kind(*(message or f"{stage}: exit status {status}").split("\n"))
