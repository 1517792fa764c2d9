"""The device on which the stages of a run compute."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from citer.config.pair import DEVICE, Device
from citer.config.params import load_params


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
