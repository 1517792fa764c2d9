"""One DeepSpeed rank; torchrun starts it as `python -m citer.finetune.rank JOB FOLDER`."""

import os
import signal
import sys
import threading
from pathlib import Path

from citer.finetune.job import Job


def main() -> None:
    threading.Thread(target=_end_with_the_launcher, daemon=True).start()
    _prepare_deepspeed()
    from torch import distributed  # seconds: not before the watch has begun

    from citer.finetune.trainer import train

    train(Job.model_validate_json(sys.argv[1]), Path(sys.argv[2]))
    distributed.destroy_process_group()  # waits for ranks that still read from this one
    os._exit(0)  # gloo's threads can abort a process that Python takes apart (pytorch #179291)


def _end_with_the_launcher() -> None:
    """Nobody writes to the pipe: reading ends when the launching process has ended."""
    os.read(sys.stdin.fileno(), 1)
    os.killpg(0, signal.SIGKILL)


def _prepare_deepspeed() -> None:
    import deepspeed.ops

    # Else DeepSpeed compiles this op, for 100 s and with a compiler; gloo does its work.
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


if __name__ == "__main__":
    main()
