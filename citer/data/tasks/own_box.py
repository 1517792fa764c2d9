"""What Linux offers to shut in code that a model wrote, called in the C library.

Namespaces take network, files and other processes away. Where they are refused, for example by
Docker, limits, an end without privileges and a folder of its own are left.
"""

import ctypes
import os
import re
import signal
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from glob import glob
from pathlib import Path
from tempfile import TemporaryDirectory

REFUSED = 77  # exit status
USER, MOUNTS, IPC, PID, NETWORK = 0x10000000, 0x00020000, 0x08000000, 0x20000000, 0x40000000
PARENT_DEATH, DUMPABLE, SUBREAPER, NO_NEW_PRIVILEGES = 1, 4, 36, 38  # options of prctl
CAPABILITIES = 0x20080522  # the version of capset's arguments
READ_ONLY, NO_SETUID, NO_DEVICES, BIND, DETACH, PRIVATE = 1, 2, 4, 4096, 2, 1 << 18
MOUNT_SETATTR, WORKING_FOLDER, RECURSIVE = 442, -100, 0x8000  # a system call and its arguments

SHM = "/dev/shm"  # exists on every Linux
DEVICES = [f"/dev/{name}" for name in ("full", "null", "random", "urandom", "zero")]
PRIVATE_FOLDERS = ("data", ".dvc", ".git", "mlruns", ".retrain")  # of a project
RETRAININGS, RUN = ".retrain", "citer-run-"  # names of flows/worktree.py and process_tree.py
MOST_WRITTEN = 2**26  # bytes of an answer
PROCESSES = 512
SYSTEM = {  # limits of the namespaces: nothing may outlive an answer, and no namespace follows
    "kernel/shmmni": 0,
    "kernel/msgmni": 0,
    "user/max_user_namespaces": 0,
}

LIBC = ctypes.CDLL(None, use_errno=True)


def boxed(serve: Callable[[bool], None]) -> None:
    """Run `serve(True)` as the first process of new namespaces.

    Run `serve(False)` without them if the kernel refuses, by an OSError of `serve` or before.
    """
    if not (box := os.fork()):
        status = 1
        try:
            status = _inside(serve)
        except OSError:
            status = REFUSED
        finally:
            os._exit(status)
    status = _awaited(box)
    if status == REFUSED:
        serve(False)
    else:
        sys.exit(status)


def _inside(serve: Callable[[bool], None]) -> int:
    prctl(PARENT_DEATH, signal.SIGKILL)
    maps = {"setgroups": "deny", "uid_map": f"0 {os.getuid()} 1"}
    maps["gid_map"] = f"0 {os.getgid()} 1"
    _call("unshare", USER | MOUNTS | IPC | PID | NETWORK)
    for name, text in maps.items():
        Path("/proc/self", name).write_text(text)
    if first := os.fork():  # only a child is in the new pid namespace
        return _awaited(first)
    prctl(PARENT_DEATH, signal.SIGKILL)
    _set("/", RECURSIVE, propagation=PRIVATE)
    _mount("proc", "/proc")
    serve(True)
    return 0


def _awaited(child: int) -> int:
    """Return the exit status of a child, or end by the signal that ended it."""
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status < 0:
        os.kill(os.getpid(), -status)
    return status


def seal() -> None:
    """Make files read-only, hide some, and take devices away. Raises OSError."""
    # Before Linux 6.14 all namespaces have one pid_max, and root would change the machine's.
    linux = tuple(map(int, re.findall(r"\d+", os.uname().release)[:2]))
    own = {"kernel/pid_max": PROCESSES} if linux >= (6, 14) else {}
    for name, limit in (SYSTEM | own).items():
        with suppress(OSError):
            Path("/proc/sys", name).write_text(str(limit))
    for device in DEVICES:
        _mount(device, device, BIND)
    _set("/", RECURSIVE, READ_ONLY | NO_SETUID | NO_DEVICES)
    for device in DEVICES:
        _set(device, cleared=NO_DEVICES)
    for folder in _hidden():
        _mount("tmpfs", folder, READ_ONLY)
    with emptied(True):
        pass


def _hidden() -> Iterator[str]:
    """Yield folders to hide: not those that hold Python or a package."""
    needed = [Path(place).resolve() for place in (*sys.path, sys.prefix, sys.base_prefix)]
    for folder in dict.fromkeys(map(Path.resolve, _private())):
        if folder.is_dir() and not any(path.is_relative_to(folder) for path in needed):
            yield str(folder)


def _private() -> Iterator[Path]:
    """Yield the folders with right answers and keys, and those with sockets.

    A retraining in a worktree hides its checkout, too. The fork server of a run has a socket in a
    folder `pymp-…`, by which anybody could have it run code.
    """
    here, temporary = Path.cwd(), Path(os.environ.get("TMPDIR", "/tmp"))
    for project in (here, *([here.parents[1]] if here.parent.name == RETRAININGS else [])):
        yield from (project, *(project / name for name in PRIVATE_FOLDERS))
    outer = [temporary.parent] if temporary.name.startswith(RUN) else []
    shared = map(Path, ("/run", "/tmp", "/var/tmp"))
    yield from (*shared, *outer, temporary, *temporary.glob("pymp-*"))


@contextmanager
def emptied(box: bool) -> Iterator[str]:
    """Make an empty folder for an answer. In namespaces the kernel limits its bytes."""
    if not box:
        with TemporaryDirectory(prefix="citer-grader-", ignore_cleanup_errors=True) as folder:
            yield folder
        return
    _mount("tmpfs", SHM, data=f"size={MOST_WRITTEN},nr_inodes=4k")
    yield SHM
    _call("umount2", SHM.encode(), DETACH)


def give_up_privileges() -> None:
    """Give up root's capabilities for good, and those that a program with set-uid would give."""
    prctl(NO_NEW_PRIVILEGES, 1)
    _call("capset", struct.pack("Ii", CAPABILITIES, 0), bytes(24))


def end_children(first: int, box: bool) -> int:
    """Kill and await all descendants. Return the exit code of `first`, negative for a signal."""
    ended = {}
    while children := _children():
        for child in [-1] if box else children:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        for child in children:
            ended[child] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return ended[first]


def _children() -> list[int]:
    lists = [Path(file).read_text() for file in glob("/proc/self/task/*/children")]
    return [int(child) for child in " ".join(lists).split()]


def prctl(option: int, value: int) -> None:
    _call("prctl", option, value, 0, 0, 0)


def _mount(kind: str, folder: str, flags: int = 0, data: str = "") -> None:
    flags |= 0 if flags & BIND else NO_SETUID | NO_DEVICES
    _call("mount", *map(str.encode, (kind, folder, kind)), flags, data.encode())


def _set(
    folder: str, scope: int = 0, added: int = 0, cleared: int = 0, propagation: int = 0
) -> None:
    """Change flags of a mounted file system. Linux has this since 5.12."""
    attributes = struct.pack("QQQQ", added, cleared, propagation, 0)
    size = len(attributes)
    _call("syscall", MOUNT_SETATTR, WORKING_FOLDER, folder.encode(), scope, attributes, size)


def _call(function: str, *arguments: int | bytes) -> None:
    if getattr(LIBC, function)(*arguments):
        number = ctypes.get_errno()
        raise OSError(number, f"{function}: {os.strerror(number)}")
