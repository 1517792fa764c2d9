"""How many stages run at the same time, and the GPUs of each."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain

from citer.config.pair import DEVICE, Device
from citer.config.params import Params, load_params

VISIBLE = "CUDA_VISIBLE_DEVICES"

Gpus = tuple[str, ...]  # as CUDA_VISIBLE_DEVICES names them


@dataclass(frozen=True)
class Room:
    """How many stages run at the same time, and the GPUs that they share."""

    places: int
    gpus: Gpus = ()  # none: nothing to share
    greedy: frozenset[str] = frozenset()  # the stages that need all GPUs

    def starts(self, ready: Sequence[str], running: Mapping[str, Gpus]) -> dict[str, Gpus]:
        """Choose the ready stages that start now, and divide the free GPUs among them."""
        places = self.places - len(running)
        if not self.gpus:
            return dict.fromkeys(ready[:places], ())
        if ready and ready[0] in self.greedy:
            return {} if running else {ready[0]: self.gpus}
        used = {*chain.from_iterable(running.values())}
        free = [gpu for gpu in self.gpus if gpu not in used]
        chosen = [name for name in ready if name not in self.greedy][: min(places, len(free))]
        return {name: tuple(free[n :: len(chosen)]) for n, name in enumerate(chosen)}


def room(params: Params) -> Room:
    """Return the room for `workers.stages`. Where there are GPUs, each stage needs one."""
    stages = params.workers.stages
    gpus = _gpus(params) if stages > 1 else ()
    if not gpus:
        return Room(stages)
    if params.pair.llm_device_map:  # every stage needs all GPUs
        return Room(1)
    greedy = ["finetune"] if params.finetune.processes > 1 else []
    return Room(min(stages, len(gpus)), gpus, frozenset(greedy))


def _gpus(params: Params) -> Gpus:
    if params.pair.device == "cpu":
        return ()
    import torch  # takes seconds

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    listed = os.environ.get(VISIBLE)
    return tuple(listed.split(",") if listed else map(str, range(count)))[:count]


@contextmanager
def on_device(device: Device) -> Iterator[None]:
    """Run the stages of the block on `device`. `auto` leaves it to CITER_DEVICE and pair.device.

    Raises InputError if that is cuda and there is none, before any stage runs.
    """
    before = os.environ.get(DEVICE)
    if device != "auto":
        os.environ[DEVICE] = device
    try:
        if load_params().pair.device == "cuda":
            from citer.models.device import resolve_device  # takes seconds

            resolve_device("cuda")
        yield
    finally:
        os.environ.pop(DEVICE, None)
        os.environ |= {DEVICE: before} if before is not None else {}
