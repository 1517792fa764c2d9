"""Progress bars and warnings on standard error."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from citer.errors import InputError

Advance = Callable[[float], None]  # adds to the work that is done

LOG_SECONDS = 60  # between two lines in a log
LOG_WIDTH = 120  # characters: with 80, a long title would cut off the numbers


class _Throughput(ProgressColumn):
    """Units per second since the start of this run. A moving average would jump between bursts."""

    def render(self, task: Task) -> Text:
        seconds = task.finished_time or task.elapsed
        speed = (task.completed - task.fields["before"]) / seconds if seconds else 0.0
        shown = f"{speed:,.0f}" if speed >= 10 else f"{speed:.2g}"
        return Text(f"{shown} {task.fields['unit']}/s")


@contextmanager
def progress(title: str, total: float | None, unit: str, before: int = 0) -> Iterator[Advance]:
    """Show a bar and yield `advance(n)`, which adds `n` units to it.

    `total` is the number of units, or None if unknown. Earlier runs did `before` of them. Without a
    terminal, the bar is a line, printed once a minute and at the end. It disappears if InputError
    is raised, so that only the error message is left.
    """
    console = Console(file=sys.stderr)
    if not console.is_terminal:
        console.width = LOG_WIDTH
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        _Throughput(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
    )
    with bar:
        task = bar.add_task(title, total=total, completed=before, before=before, unit=unit)
        try:
            yield partial(bar.advance, task) if console.is_terminal else _logging(bar, task)
        except InputError:
            bar.live.transient = True
            bar.live.stop()
            bar.disable = True  # else it adds an empty line if there is no terminal
            raise


def _logging(bar: Progress, task: TaskID) -> Advance:
    """Return an `advance` that prints the bar from time to time, as a line of a log."""
    printed = time.monotonic()

    def advance(count: float) -> None:
        nonlocal printed
        bar.advance(task, count)
        if time.monotonic() - printed >= LOG_SECONDS and not bar.finished:
            bar.console.print(bar.get_renderable())
            printed = time.monotonic()

    return advance


def warn(text: str) -> None:
    """Print one line about a problem that does not stop the run."""
    Console(stderr=True).print(text, style="yellow", markup=False, highlight=False, soft_wrap=True)
