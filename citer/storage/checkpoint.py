"""The state of a training, and a file that keeps it. A killed run goes on from there."""

import copy
import hashlib
import io
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from citer.errors import InputError, reading
from citer.storage.tables import replacing

SAVE_SECONDS = 30  # between two savings: a short training is not slowed down by any
DIGEST_BYTES = hashlib.sha256().digest_size

State = dict[str, Any]


class Checkpoint:
    """A file with a digest of its content, so that damage is noticed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._saved = time.monotonic()

    def load(self) -> State | None:
        """Return the saved state, on the CPU, or None. Raises InputError if it is damaged."""
        if not self.path.exists():
            return None
        with reading(self.path):
            content = self.path.read_bytes()
        digest, content = content[:DIGEST_BYTES], content[DIGEST_BYTES:]
        if hashlib.sha256(content).digest() != digest:
            raise InputError(f"{self.path}: damaged, or changed since citer wrote it: remove it")
        state: State = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        return state

    def save(self, state: Callable[[], State]) -> None:
        """Write the state unless the last one is younger than `SAVE_SECONDS`."""
        if time.monotonic() - self._saved < SAVE_SECONDS:
            return
        buffer = io.BytesIO()
        torch.save(state(), buffer)
        _write(self.path, buffer.getvalue())
        self._saved = time.monotonic()


def _write(path: Path, content: bytes) -> None:
    with replacing(path) as aside:
        aside.write_bytes(hashlib.sha256(content).digest() + content)


class Curve(NamedTuple):
    """Mean cross-entropy in nats, by epoch.

    `train_loss` is that of the batches of the epoch, as the weights change and with dropout, so
    it may lie above `holdout_loss`.
    """

    train_loss: list[float]
    holdout_loss: list[float]


class Training:
    """Everything that the next epoch depends on, and the best weights so far."""

    def __init__(
        self, mlp: nn.Module, optimizer: Optimizer, seed: int, device: torch.device
    ) -> None:
        self.mlp = mlp
        self.optimizer = optimizer
        self.order = torch.Generator().manual_seed(seed)  # of the batches
        self.dropout = torch.default_generator
        if device.type == "cuda":
            self.dropout = torch.cuda.default_generators[torch.cuda.current_device()]
        self.curve = Curve([], [])
        self.best: dict[str, Tensor] = {}

    def add(self, train_loss: float, holdout_loss: float) -> None:
        """Take the losses of an epoch. Keep the weights if the holdout loss is the lowest."""
        losses = self.curve.holdout_loss
        self.curve.train_loss.append(train_loss)
        losses.append(holdout_loss)
        if losses.index(min(losses)) == len(losses) - 1:
            self.best = copy.deepcopy(self.mlp.state_dict())

    def state(self) -> State:
        return {
            "mlp": self.mlp.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "order": self.order.get_state(),
            "dropout": self.dropout.get_state(),
            "curve": self.curve._asdict(),
            "best": self.best,
        }

    def restore(self, state: State) -> None:
        self.mlp.load_state_dict(state["mlp"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.order.set_state(state["order"])
        self.dropout.set_state(state["dropout"])
        self.curve, self.best = Curve(**state["curve"]), state["best"]
