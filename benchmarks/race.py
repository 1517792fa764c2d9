"""Methods timed in turn, so that what slows the machine slows them all."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

import torch

from citer.progress import progress

ROUNDS = 3  # at least
SECONDS = 10.0  # short methods are repeated for so long
MOST_ROUNDS = 30

Method = Callable[[], float]  # does its work and returns how much it was: tokens, bytes, runs


@dataclass(frozen=True)
class Race:
    """What each method did a second, round by round."""

    speeds: Mapping[str, list[float]]

    def speed(self, name: str) -> float:
        return median(self.speeds[name])

    def ratio(self, name: str, other: str) -> float:
        """How many times faster `name` is than `other`: the median of the rounds' ratios."""
        rounds = zip(self.speeds[name], self.speeds[other], strict=True)
        return median(speed / slower for speed, slower in rounds)

    def details(self, unit: str = "tokens") -> dict[str, float]:
        return {f"{name} {unit}/s": self.speed(name) for name in self.speeds}


def race(title: str, methods: Mapping[str, Method]) -> Race:
    """One run of each method a round; three rounds at least, more of short ones."""
    speeds: dict[str, list[float]] = {name: [] for name in methods}
    started = time.perf_counter()
    with progress(title, None, "runs") as advance:
        for n in range(MOST_ROUNDS):
            if n >= ROUNDS and time.perf_counter() - started > SECONDS:
                break
            for name, method in methods.items():
                speeds[name].append(_speed(method))
                advance(1)
    return Race(speeds)


def _speed(method: Method) -> float:
    _wait_for_device()
    started = time.perf_counter()
    amount = method()
    _wait_for_device()
    return amount / (time.perf_counter() - started)


def _wait_for_device() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
