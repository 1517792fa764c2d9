"""One DeepSpeed rank; torchrun starts it as `python -m citer.training.rank JOB FOLDER`."""

import os
import signal
import sys
from functools import partial
from pathlib import Path

from citer.executors.lifeline import when_closed
from citer.training.job import Job


def main() -> None:
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
