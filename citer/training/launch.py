"""Train with DeepSpeed: start a process per rank, and end all of them with this process."""

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from citer.training.hosts import TORCHRUN, Host, over_ssh
from citer.training.job import Job


def launch(job: Job, folder: Path, hosts: Sequence[Host]) -> None:
    """Train `job` in `folder` on `params.processes` ranks, here or on `hosts`.

    Raises RuntimeError if a rank fails. torchrun starts every rank in its own session, so signals
    to this process group do not reach a rank. Each rank therefore watches the pipe on its standard
    input, which closes when this process ends for any reason. ssh passes the closing on.
    """
    program = ["-m", "citer.training.rank", job.model_dump_json(), str(folder)]
    settings = _settings(job)
    if hosts:
        commands = over_ssh(hosts, program, settings)
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


def _settings(job: Job) -> dict[str, str]:
    settings = {
        "DS_ACCELERATOR": job.device,
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        "PYTHONWARNINGS": "ignore::FutureWarning",
    }
    return settings | ({"CUDA_VISIBLE_DEVICES": ""} if job.device == "cpu" else {})
