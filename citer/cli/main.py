"""The command `citer`: its list of commands and its exit statuses."""

import ctypes
import errno
import gc
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Annotated

import typer
from rich.console import Console

from citer.cli import answers, pipeline, serve, stages, tools
from citer.errors import InputError, TemporaryError, one_line
from citer.executors.memory import advice, ran_out

COMMANDS: Mapping[str, Sequence[Callable[..., None]]] = {
    "Answers": [answers.generate, serve.serve, serve.status],
    "Retraining and registry": [
        pipeline.run,
        pipeline.schedule,
        pipeline.alerts,
        pipeline.compare,
        pipeline.promote,
        pipeline.restore,
        pipeline.certify,
        pipeline.erase,
    ],
    "Stages (dvc.yaml runs them)": stages.COMMANDS,
    "Tools": [tools.profile, tools.bench, tools.pretrain],
}

HELP = """Token-level routing between a small and a large language model.

Exit status: 0 done; 1 failed, for example because memory or the disk is full
or a server does not answer; 2 bad input: correct it.
"""
BAD_INPUT, REFUSED = 2, 1  # exit statuses
# Errors that the user can correct. Others, such as a full disk, may be gone at the next attempt.
USERS = {errno.EACCES, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOTDIR, errno.EPERM}
NEW_OBJECTS = 200_000  # between two collections of the youngest ones
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # glibc's malloc.h


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"citer {version('citer')}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version)
    ] = False,
) -> None:
    pass


app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False, help=HELP)
for panel, commands in COMMANDS.items():
    for each in commands:
        app.command(each.__name__, rich_help_panel=panel)(each)
app.callback()(_options)
app.add_typer(pipeline.data, name="data", rich_help_panel="Retraining and registry")


def call(arguments: Sequence[str] | None = None) -> int:
    """Run one command, print what failed, and return the exit status."""
    status, message = attempt(arguments)
    return refuse(message, status) if message else status


def attempt(arguments: Sequence[str] | None = None) -> tuple[int, str]:
    """Run one command, by default with this process's arguments.

    Returns its exit status (see `HELP`; the flow retries 1), and what to tell the user.
    """
    try:
        app(arguments, prog_name="citer")
    except TemporaryError as error:
        return REFUSED, str(error)
    except InputError as error:
        return BAD_INPUT, str(error)
    except OSError as error:
        if error.errno in (None, errno.ENOENT):  # from a library, or a bug of ours
            raise
        place = f"{error.filename}: " if error.filename else ""
        status = BAD_INPUT if error.errno in USERS else REFUSED
        return status, f"{place}{os.strerror(error.errno)}"
    except SystemExit as ended:
        return int(ended.code or 0), ""
    except Exception as error:
        if not ran_out(error):
            raise
        command = next(iter(sys.argv[1:] if arguments is None else arguments))
        said = str(error).partition("\n")[0] or type(error).__name__
        return REFUSED, f"{command}: out of memory: {said}; {advice(command)}"
    return 0, ""


def refuse(message: str, status: int) -> int:
    """Print each line of a message to stderr, and return the status."""
    console = Console(stderr=True, style="red", soft_wrap=True)
    for line in message.split("\n"):
        console.print(f"citer: {one_line(line)}", markup=False, highlight=False)
    return status


def tune_process() -> None:
    """Set what the libraries read when they are imported, and how memory is kept."""
    # If other processes use the same cores, spinning OpenMP threads make a step several times
    # slower. A spin of a few microseconds stays: it avoids a wake-up after each short wait.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    # A sweep makes millions of small objects that live long. Python would search them for cycles
    # after every 700 new ones, which takes a twentieth of the sweep.
    gc.set_threshold(NEW_OBJECTS)
    # Malloc keeps freed memory. The kernel would zero every page that it hands out again.
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):  # glibc
        libc.mallopt(M_MMAP_THRESHOLD, 2**25)  # the largest value that older versions take
        libc.mallopt(M_TRIM_THRESHOLD, 2**30)


def main() -> None:
    """Run the command of this process's arguments, and exit."""
    sys.path.insert(0, "")  # `flows` and `benchmarks` are imported from the project's folder
    tune_process()
    if status := call():
        raise SystemExit(status)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # skip the interpreter's shutdown, which takes a second once torch is loaded
