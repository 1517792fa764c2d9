"""Progress of long work on standard error: share done, throughput, time left."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text


class _Throughput(ProgressColumn):
    def render(self, task: Task) -> Text:
        unit = task.fields["unit"]
        return Text(f"{task.finished_speed or task.speed or 0:,.0f} {unit}/s")


@contextmanager
def progress(title: str, total: float | None, unit: str) -> Iterator[Callable[[float], None]]:
    """Yield `advance(n)`; `total` in `unit`s (None: unknown)."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        _Throughput(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(file=sys.stderr),
    )
    with bar:
        task = bar.add_task(title, total=total, unit=unit)
        yield lambda count: bar.advance(task, count)
