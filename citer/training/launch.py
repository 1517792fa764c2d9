"""Train with DeepSpeed: start a process per rank, here or on the machines of a hostfile.

The file has DeepSpeed's format, lines `HOST slots=N`. It says where ranks run. Their number, on
which results depend, is `finetune.processes`. All ranks end with this process. A rank is
`python -m citer.training.launch JOB FOLDER`.
"""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

from citer.errors import InputError, read_text, shown
from citer.executors.base import when_closed
from citer.training.job import Job

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


def launch(job: Job, folder: Path, hosts: Sequence[Host]) -> None:
    """Train `job` in `folder` on `params.processes` ranks, here or on `hosts`.

    Raises RuntimeError if a rank fails. torchrun starts every rank in its own session, so signals
    to this process group do not reach a rank. Each rank therefore watches the pipe on its standard
    input, which closes when this process ends for any reason. ssh passes the closing on.
    """
    program = ["-m", "citer.training.launch", job.model_dump_json(), str(folder)]
    settings = {
        "DS_ACCELERATOR": job.device,
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        "PYTHONWARNINGS": "ignore::FutureWarning",
    }
    if job.device == "cpu":
        settings["CUDA_VISIBLE_DEVICES"] = ""
    if hosts:
        commands = _over_ssh(hosts, program, settings)
    else:
        here = ["--standalone", f"--nproc-per-node={job.params.processes}"]
        commands = {"torchrun": [*TORCHRUN, *here, *program]}
    _run(commands, os.environ | settings)


def _run(commands: Mapping[str, Sequence[str]], env: Mapping[str, str]) -> None:
    """Run all commands at the same time. If one fails, end the others."""
    with ExitStack() as stack:
        running = {
            name: stack.enter_context(subprocess.Popen(command, stdin=subprocess.PIPE, env=env))
            for name, command in commands.items()
        }
        while None in (codes := [each.poll() for each in running.values()]) and not any(codes):
            time.sleep(0.1)
    for name, code in zip(running, codes, strict=True):
        if code:
            raise RuntimeError(f"{name} ended with {code}: see its report above")


def _over_ssh(
    hosts: Sequence[Host], program: Sequence[str], settings: Mapping[str, str]
) -> dict[str, list[str]]:
    """Return the commands that start torchrun on all hosts, by what they are.

    torchrun runs `program` in this folder, which all hosts share. Ranks meet at the first host.
    """
    first = hosts[0].name.rpartition("@")[2]
    with socket.socket() as server:
        server.bind(("", 0))
        port = server.getsockname()[1]  # free here, and therefore probably on the first host
    meeting = [f"--nnodes={len(hosts)}", f"--master-addr={first}", f"--master-port={port}"]
    passed = {name: value for name, value in os.environ.items() if PASSED.fullmatch(name)}
    variables = [f"{name}={value}" for name, value in (passed | {**settings}).items()]
    commands = {}
    for number, (name, ranks) in enumerate(hosts):
        place = [f"--node-rank={number}", f"--nproc-per-node={ranks}"]
        torchrun = shlex.join(["env", *variables, *TORCHRUN, *meeting, *place, *program])
        command = f"cd {shlex.quote(os.getcwd())} && exec {torchrun}"
        commands[f"torchrun on {name}"] = [*SSH, name, command]
    return commands


def main() -> None:
    """Run a rank, which torchrun starts."""
    # `launch` holds the other end of this pipe.
    when_closed(sys.stdin.fileno(), partial(os.killpg, 0, signal.SIGKILL))
    import deepspeed.ops  # takes seconds: start the watch first

    # Otherwise DeepSpeed compiles this op for 100 s, and needs a compiler; gloo replaces it.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    deepspeed.init_distributed()  # on a CPU the trainer does not, and ZeRO-3 would see one rank

    from torch import distributed

    from citer.models.folder import ModelFolder
    from citer.training.trainer import train

    job = Job.model_validate_json(sys.argv[1])
    train(job, ModelFolder(job.base).tokenizer, Path(sys.argv[2]))
    distributed.destroy_process_group()  # waits for ranks that still read from this rank
    os._exit(0)  # gloo's threads can abort a process during a normal exit (pytorch #179291)


if __name__ == "__main__":
    main()
