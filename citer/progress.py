"""Progress of long work, and warnings, on standard error."""

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

from citer.errors import InputError

LOG_WIDTH = 120  # a log has no edge: at a terminal's 80 long titles would cut the numbers short


class _Throughput(ProgressColumn):
    """Of this run since its start: of the last moments it would jump where work is in bursts."""

    def render(self, task: Task) -> Text:
        seconds = task.finished_time or task.elapsed
        speed = (task.completed - task.fields["before"]) / seconds if seconds else 0.0
        shown = f"{speed:,.0f}" if speed >= 10 else f"{speed:.2g}"
        return Text(f"{shown} {task.fields['unit']}/s")


@contextmanager
def progress(
    title: str, total: float | None, unit: str, before: int = 0
) -> Iterator[Callable[[float], None]]:
    """Yield `advance(n)`; `total` in `unit`s (None: unknown), some of them done in runs `before`.

    Bad input leaves no bar behind.
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
            yield lambda count: bar.advance(task, count)
        except InputError:
            bar.live.transient = True
            bar.live.stop()
            bar.disable = True  # it would add an empty line where there is no terminal
            raise


def warn(text: str) -> None:
    """A line on standard error, of what the run goes on in spite of."""
    Console(stderr=True).print(text, style="yellow", markup=False, highlight=False, soft_wrap=True)
