"""The input of a training process and the checkpoints that it writes."""

from pathlib import Path
from typing import Literal

import pyarrow as pa

from citer.config.params import FinetuneParams
from citer.errors import InputError
from citer.sections import Section
from citer.storage.tables import read_json, remove

ROWS = "rows.parquet"
ROW = pa.schema(
    [
        pa.field("input_ids", pa.list_(pa.int32()), nullable=False),
        pa.field("completion_mask", pa.list_(pa.int8()), nullable=False),  # 1: in the loss
    ]
)


class Job(Section):
    """A training run of so many `steps`, with a checkpoint after every `save_steps` of them.

    Its folder holds `rows.parquet` as input and `checkpoint-N` as output.
    """

    base: Path
    params: FinetuneParams
    seed: int
    steps: int
    save_steps: int
    device: Literal["cpu", "cuda"]
    bf16: bool
    checkpointing: bool
    deepspeed: bool


def last_checkpoint(folder: Path) -> Path | None:
    """Return the newest complete checkpoint. Remove newer ones, which a kill left incomplete.

    The trainer writes `trainer_state.json` last, so a checkpoint with this file is complete.
    """
    for checkpoint in sorted(folder.glob("checkpoint-*"), key=steps_done, reverse=True):
        try:
            read_json(checkpoint / "trainer_state.json")
        except InputError:
            remove(checkpoint)
        else:
            return checkpoint
    return None


def steps_done(checkpoint: Path | None) -> int:
    return int(checkpoint.name.rpartition("-")[2]) if checkpoint else 0


def losses(checkpoint: Path) -> list[float]:
    """Return the loss of every step up to a checkpoint, in nats per completion token."""
    history = read_json(checkpoint / "trainer_state.json")["log_history"]
    return [entry["loss"] for entry in history if "loss" in entry]
