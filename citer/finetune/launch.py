"""Training under DeepSpeed: ranks in processes of their own, none of which outlives this one."""

import os
import subprocess
import sys
from pathlib import Path

from citer.finetune.job import Job


def launch(job: Job, folder: Path) -> None:
    """Train `job` in `folder` on `params.processes` ranks; raises RuntimeError where one fails.

    torchrun gives every rank a session of its own, so that no signal to our group reaches them.
    They watch the pipe on their standard input instead: it closes when this process ends, however
    it ends.
    """
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc-per-node={job.params.processes}", "-m", "citer.finetune.rank"]
    command += [job.model_dump_json(), str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=_environment(job)) as torchrun:
        code = torchrun.wait()
    if code:
        raise RuntimeError(f"torchrun ended with {code}: its own report is above")


def _environment(job: Job) -> dict[str, str]:
    ours = {"DS_ACCELERATOR": job.device, "PYTHONWARNINGS": "ignore::FutureWarning"}
    if job.device == "cpu":
        ours["CUDA_VISIBLE_DEVICES"] = ""
    return {"OMP_NUM_THREADS": "1", **os.environ, **ours}
