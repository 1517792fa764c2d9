"""The process behind `flows.forkserver`: it has imported the stages, and forks a leash on request.

`python -m flows.preloaded` reads requests from a socket, its standard input, until this closes. A
stage's processes form one tree, so its leash ends all of them:

    leash, forked from this process
    ├── DVC ── sh ── `citer STAGE`, which asks the leash to run the command (`citer.cli.door`)
    └── the command, forked from the leash

Where there is a GPU, this process ends at once, and `flows.leash` starts the leashes: CUDA does not
survive a fork.
"""

import gc
import json
import os
import pkgutil
import signal
import socket
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from importlib import import_module
from select import select
from tempfile import TemporaryDirectory
from threading import Thread
from traceback import print_exc
from typing import Any

import citer.stages
from citer.cli import main as cli
from citer.cli.door import DOOR, STREAMS
from citer.storage.code import stage_digests
from flows.leash import hold, shell_status


def main() -> None:
    """Import the stages, then fork a leash for each request."""
    cli.tune_process()
    if import_module("torch").cuda.is_available():
        return
    for stage in pkgutil.iter_modules(citer.stages.__path__):
        import_module(f"citer.stages.{stage.name}")
    stage_digests()  # it is cached, and thus the digest of the code that the forks run
    gc.collect()
    gc.freeze()  # collection in a fork would write to the shared pages, and a write copies the page
    # Python 3.12 warns of the threads of native libraries. They expect to be forked.
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
    signal.signal(signal.SIGCHLD, lambda *_: _reap(os.WNOHANG))
    control = socket.socket(fileno=sys.stdin.fileno())
    while descriptors := socket.recv_fds(control, 1, 3)[1]:
        _fork(partial(_leash, *descriptors))
        _close(descriptors)
    _reap()
    os._exit(0)  # the interpreter's shutdown takes a second once torch is loaded


def _reap(options: int = 0) -> None:
    """Take note of leashes that have ended, so that their CPU time counts as that of the run."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, options)[0]:
            pass


def _close(descriptors: Iterable[int]) -> None:
    for each in descriptors:
        os.close(each)


def _fork(work: Callable[[], int]) -> int:
    """Do some work in a fork, which exits with its result, and return the fork's pid."""
    if pid := os.fork():
        return pid
    status = 1
    try:
        status = _status(work)
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        status = status or 1
        print_exc()
    finally:
        os._exit(status)


def _status(work: Callable[[], int]) -> int:
    try:
        return work()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 1


def _leash(answers: int, output: int, caller: int) -> int:
    """Be the leash of a command (`flows.leash`). Its caller gets the pid, then the status."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    _take_streams([os.open(os.devnull, os.O_RDONLY), output, output])
    with socket.socket(fileno=answers) as connection:
        request = _read(connection)
        connection.sendall(f"{os.getpid()}\n".encode())
        status = 1
        try:
            _enter(request)
            status = _held(request["seconds"], request["command"], caller)
        except Exception:
            print_exc()
        sys.stderr.flush()
        connection.sendall(f"{status}\n".encode())
    return status


def _held(seconds: float, command: Sequence[str], caller: int) -> int:
    """Hold the command, and run the commands of `citer` that ask for it."""
    with TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as door:
        # The path of a socket has at most 107 characters, and that of the folder may be longer.
        opened = os.open(folder, os.O_RDONLY)
        os.environ[DOOR] = f"/proc/{os.getpid()}/fd/{opened}/door"
        door.bind(os.environ[DOOR])
        door.listen()
        # The main thread forks: malloc keeps freed memory for the main thread of a process only.
        with ThreadPoolExecutor(1) as pool:
            status = pool.submit(hold, seconds, command, caller)
            status.add_done_callback(lambda _: door.shutdown(socket.SHUT_RDWR))
            _answer(door)
            return status.result()


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


def _answer(door: socket.socket) -> None:
    """Run commands until the door is shut."""
    while True:
        try:
            caller, _ = door.accept()
        except OSError:
            return
        try:
            _run(caller)
        except (OSError, ValueError):  # if the caller was killed, its request is not complete
            caller.close()


def _run(caller: socket.socket) -> None:
    """Run a command in a fork. Its caller gets the status."""
    _, streams, *_ = socket.recv_fds(caller, 1, len(STREAMS))
    try:
        pid = _fork(partial(_command, streams, _read(caller)))
    finally:
        _close(streams)
    Thread(target=_follow, args=[pid, caller], daemon=True).start()


def _follow(pid: int, caller: socket.socket) -> None:
    """Send a command's exit status to its caller. End the command if the caller ends first."""
    with caller, suppress(OSError):  # the leash has ended the command, or the caller
        command = os.pidfd_open(pid)
        select([command, caller.fileno()], [], [])
        if not select([command], [], [], 0)[0]:
            signal.pidfd_send_signal(command, signal.SIGKILL)
        os.close(command)
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
