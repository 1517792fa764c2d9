"""Time methods in turn, so that other load on the machine slows all of them alike."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median

import torch

from citer.progress import progress

ROUNDS = 3  # at least
SECONDS = 10.0  # short methods are repeated for this long
MOST_ROUNDS = 30

Method = Callable[[], float]  # runs once and returns the amount of work: tokens, bytes, runs


@dataclass(frozen=True)
class Race:
    """Each method's amount of work per second, round by round."""

    speeds: Mapping[str, list[float]]

    def speed(self, name: str) -> float:
        return median(self.speeds[name])

    def ratio(self, name: str, other: str) -> float:
        """Return how many times faster `name` is than `other`: the median of the rounds' ratios."""
        rounds = zip(self.speeds[name], self.speeds[other], strict=True)
        return median(speed / slower for speed, slower in rounds)

    def details(self, unit: str = "tokens") -> dict[str, float]:
        return {f"{name} {unit}/s": self.speed(name) for name in self.speeds}


def race(title: str, methods: Mapping[str, Method]) -> Race:
    """Run each method once per round: at least three rounds, more if the methods are short."""
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
