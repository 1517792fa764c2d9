"""Progress of long work on standard error, and warnings.

A terminal shows a line that is kept up to date, a log gets a line a minute.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from rich.console import Console
from rich.table import Table
from rich.text import Text

Advance = Callable[[float], None]  # adds to the work that is done

LOG_SECONDS = 60  # between two lines in a log


@dataclass
class _Work:
    """Units of work. Earlier runs did `before` of them."""

    title: str
    total: float | None
    unit: str
    before: int
    done: float = 0.0  # by this run
    start: float = field(default_factory=lambda: time.monotonic())

    def __str__(self) -> str:
        """Return a line such as `label 1: 5 of 8 rows (62 %), 1 rows/s, 0:00:05 so far`."""
        seconds, count = time.monotonic() - self.start, f"{self.before + self.done:,.0f}"
        parts = [f"{count} {self.unit}", self._throughput(seconds), f"{_clock(seconds)} so far"]
        if self.total is not None and self.left is not None:
            percent = int(100 - 100 * self.left / (self.total or 1))
            parts[0] = f"{count} of {self.total:,.0f} {self.unit} ({percent} %)"
        if self.done and self.left:
            parts.append(f"{_clock(self.left * seconds / self.done)} left")
        return f"{self.title}: {', '.join(parts)}"

    def __rich__(self) -> Text:
        return Text(str(self))

    @property
    def left(self) -> float | None:
        """The units that are left, or None if unknown."""
        return None if self.total is None else max(self.total - self.before - self.done, 0)

    def _throughput(self, seconds: float) -> str:
        """Units per second since the start of this run. A moving average jumps between bursts."""
        speed = self.done / seconds if seconds else 0.0
        return f"{f'{speed:,.0f}' if speed >= 10 else f'{speed:.2g}'} {self.unit}/s"


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


@contextmanager
def progress(title: str, total: float | None, unit: str, before: int = 0) -> Iterator[Advance]:
    """Show progress and yield `advance(n)`, which adds `n` units to it.

    `total` is the number of units, or None if unknown. Earlier runs did `before` of them. The last
    line stays, unless an error is raised.
    """
    work, console = _Work(title, total, unit, before), Console(file=sys.stderr)
    logged = work.start

    def advance(count: float) -> None:
        nonlocal logged
        work.done += count
        now = time.monotonic()
        if work.left != 0 and not console.is_terminal and now - logged >= LOG_SECONDS:
            logged = now
            print(work, file=sys.stderr)

    with console.status(work):  # draws nothing in a log
        yield advance
    print(work, file=sys.stderr)


def say(shown: str | Table, style: str | None = None) -> None:
    """Print a result on standard output: a table, or lines as they are."""
    Console().print(shown, style=style, markup=False, highlight=False, soft_wrap=True)


def warn(text: str) -> None:
    """Print one line about a problem that does not stop the run."""
    Console(stderr=True).print(text, style="yellow", markup=False, highlight=False, soft_wrap=True)
