"""The process behind `flows.forkserver`: it has imported the stages, and forks a leash on request.

`python -m flows.preloaded` reads requests from a socket, its standard input, until this closes. A
stage's processes form one tree, so its leash ends all of them:

    leash, forked from this process
    ├── DVC ── sh ── `citer STAGE`, which asks the leash to run the command (`citer.door`)
    └── the command, forked from the leash

Where there is a GPU, this process ends at once: CUDA does not survive a fork.
"""

import gc
import json
import os
import pkgutil
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from traceback import print_exc
from typing import Any, NoReturn

import citer.stages
from citer import cli
from citer.closure import stage_digests
from citer.door import DOOR, STREAMS
from flows.leash import hold, shell_status


def main() -> None:
    """Import the stages, then fork a leash for each request."""
    cli.tune_process()
    for stage in pkgutil.iter_modules(citer.stages.__path__):
        import_module(f"citer.stages.{stage.name}")
    if import_module("torch").cuda.is_available():
        return
    stage_digests()  # it is cached, and thus the digest of the code that the forks run
    gc.collect()
    gc.freeze()  # collection in a fork would write to the shared pages, and a write copies the page
    signal.signal(signal.SIGCHLD, _reap)
    control = socket.socket(fileno=sys.stdin.fileno())
    while descriptors := socket.recv_fds(control, 1, 2)[1]:
        _fork(partial(_leash, *descriptors))
        for each in descriptors:
            os.close(each)


def _reap(*_: Any) -> None:
    """Take note of leashes that have ended, so that their CPU time counts as that of the run."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _fork(work: Callable[[], int]) -> int:
    """Do some work in a fork, which exits with its result, and return the fork's pid."""
    if pid := os.fork():
        return pid
    status: Any = 1
    try:
        status = work()
    except SystemExit as ended:
        status = ended.code
    except BaseException:
        print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status or 0)


def _leash(caller: int, output: int) -> int:
    """Be the leash of a command (`flows.leash`). Its caller gets the pid, then the status."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    _take_streams([os.open(os.devnull, os.O_RDONLY), output, output])
    os.close(output)
    with socket.socket(fileno=caller) as connection:
        request = _read(connection)
        connection.sendall(f"{os.getpid()}\n".encode())
        _enter(request)
        with _door():
            status = hold(request["seconds"], request["command"], caller)
        connection.sendall(f"{status}\n".encode())
    return status


def _read(connection: socket.socket) -> Any:
    with connection.makefile() as lines:
        return json.loads(lines.readline())


def _take_streams(descriptors: Sequence[int]) -> None:
    for theirs, own in zip(descriptors, STREAMS, strict=True):
        os.dup2(theirs, own)


def _enter(request: Mapping[str, Any]) -> None:
    """Take the environment and the folder of the process that made the request."""
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])


@contextmanager
def _door() -> Iterator[None]:
    """Run commands of `citer` in forks if they ask for it."""
    with TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as door:
        path = str(Path(folder, "door"))
        with suppress(OSError):  # the path is too long for a socket
            door.bind(path)
            door.listen()
            Thread(target=_answer, args=[door], daemon=True).start()
            os.environ[DOOR] = path
        yield


def _answer(door: socket.socket) -> NoReturn:
    while True:
        caller, _ = door.accept()
        Thread(target=_run, args=[caller], daemon=True).start()


def _run(caller: socket.socket) -> None:
    """Run a command in a fork, and send its exit status to the caller."""
    with caller:
        _, streams, *_ = socket.recv_fds(caller, 1, len(STREAMS))
        pid = _fork(partial(_command, streams, _read(caller)))
        for each in streams:
            os.close(each)
        with suppress(OSError):  # the leash ended the command, or its caller
            _, status = os.waitpid(pid, 0)
            caller.sendall(f"{shell_status(os.waitstatus_to_exitcode(status))}\n".encode())


def _command(streams: Sequence[int], command: Mapping[str, Any]) -> int:
    _take_streams(streams)
    _close_others()
    _enter(command)
    sys.argv = command["argv"]
    cli.main()
    return 0


def _close_others() -> None:
    """Close all but the streams, so that the leash's sockets close when the leash ends."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in STREAMS:
            with suppress(OSError):  # the listing itself
                os.close(int(name))


if __name__ == "__main__":
    main()
