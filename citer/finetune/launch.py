"""Train with DeepSpeed: start a process per rank, and end all of them with this process."""

import os
import subprocess
import sys
from pathlib import Path

from citer.finetune.job import Job


def launch(job: Job, folder: Path) -> None:
    """Train `job` in `folder` on `params.processes` ranks. Raises RuntimeError if a rank fails.

    torchrun starts every rank in its own session, so signals to this process group do not reach a
    rank. Each rank therefore watches the pipe on its standard input, which closes when this process
    ends for any reason.
    """
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc-per-node={job.params.processes}", "-m", "citer.finetune.rank"]
    command += [job.model_dump_json(), str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=_environment(job)) as torchrun:
        code = torchrun.wait()
    if code:
        raise RuntimeError(f"torchrun ended with {code}: see its report above")


def _environment(job: Job) -> dict[str, str]:
    settings = {"DS_ACCELERATOR": job.device, "PYTHONWARNINGS": "ignore::FutureWarning"}
    if job.device == "cpu":
        settings["CUDA_VISIBLE_DEVICES"] = ""
    return {"OMP_NUM_THREADS": "1", **os.environ, **settings}
