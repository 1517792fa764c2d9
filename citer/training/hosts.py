"""The machines of a training: a file in DeepSpeed's format, with lines `HOST slots=N`.

The file says where ranks run. Their number, on which results depend, is `finetune.processes`.
"""

import os
import re
import shlex
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from citer.errors import InputError, read_text, shown

LINE = re.compile(r"([^\s#-]\S*)\s+slots=([1-9]\d{0,3})")
PASSED = re.compile("GLOO_.+|NCCL_.+|PYTHONPATH")  # variables that all hosts get
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
SSH = ["ssh", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=15"]


class Host(NamedTuple):
    """A machine, as ssh names it, and how many ranks it runs."""

    name: str
    ranks: int


def read_hosts(path: Path, processes: int) -> list[Host]:
    """Return where the ranks run: on the first hosts of the file, as many as each has slots.

    Raises InputError with the first bad line, or if there are fewer slots than processes.
    """
    hosts: list[Host] = []
    left = processes
    for name, slots in _parsed(path):
        if left:
            hosts.append(Host(name, min(slots, left)))
            left -= hosts[-1].ranks
    if left:
        expected = f"expected at least finetune.processes: {processes}"
        raise InputError(f"{path}: {processes - left} slots: {expected}")
    return hosts


def _parsed(path: Path) -> Iterator[tuple[str, int]]:
    listed: set[str] = set()
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        match = LINE.fullmatch(text)
        if not match:
            raise InputError(f"{path}:{number}: {shown(text)}: expected HOST slots=N")
        if match[1] in listed:
            raise InputError(f"{path}:{number}: {shown(match[1])}: expected each host once")
        listed.add(match[1])
        yield match[1], int(match[2])


def over_ssh(
    hosts: Sequence[Host], program: Sequence[str], settings: Mapping[str, str]
) -> dict[str, list[str]]:
    """Return the commands that start torchrun on all hosts, by what they are.

    torchrun runs `program` in this folder, which all hosts share. Ranks meet at the first host.
    """
    first = hosts[0].name.rpartition("@")[2]
    meeting = [f"--nnodes={len(hosts)}", f"--master-addr={first}", f"--master-port={_free_port()}"]
    passed = {name: value for name, value in os.environ.items() if PASSED.fullmatch(name)}
    variables = [f"{name}={value}" for name, value in (passed | {**settings}).items()]
    commands = {}
    for number, (name, ranks) in enumerate(hosts):
        place = [f"--node-rank={number}", f"--nproc-per-node={ranks}"]
        torchrun = shlex.join(["env", *variables, *TORCHRUN, *meeting, *place, *program])
        command = f"cd {shlex.quote(os.getcwd())} && exec {torchrun}"
        commands[f"torchrun on {name}"] = [*SSH, name, command]
    return commands


def _free_port() -> int:
    """Return a port that is free here, and therefore probably on the first host."""
    with socket.socket() as server:
        server.bind(("", 0))
        port: int = server.getsockname()[1]
        return port
