"""Train with DeepSpeed: torchrun starts a process per rank, and all end with this process.

A rank is `python -m citer.training.launch JOB FOLDER`.
"""

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

from citer.executors.base import when_closed
from citer.training.job import Job


def launch(job: Job, folder: Path) -> None:
    """Train `job` in `folder` on `params.processes` ranks. Raises RuntimeError if a rank fails.

    torchrun starts every rank in its own session, which no signal to this process group reaches.
    So each rank watches the pipe on its standard input, which closes when this process ends.
    """
    env = os.environ | {
        "DS_ACCELERATOR": job.device,
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        "PYTHONWARNINGS": "ignore::FutureWarning",
    }
    if job.device == "cpu":
        env["CUDA_VISIBLE_DEVICES"] = ""
    here = ["--standalone", f"--nproc-per-node={job.params.processes}"]
    rank = ["-m", "citer.training.launch", job.model_dump_json(), str(folder)]
    command = [sys.executable, "-m", "torch.distributed.run", *here, *rank]
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=env) as torchrun:
        code = torchrun.wait()
    if code:
        raise RuntimeError(f"torchrun ended with {code}: see its report above")


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
    train(job, ModelFolder(job.base), Path(sys.argv[2]))
    distributed.destroy_process_group()  # waits for ranks that still read from this rank
    os._exit(0)  # gloo's threads can abort a process during a normal exit (pytorch #179291)


if __name__ == "__main__":
    main()
