"""Detect that another process has ended, by a pipe that it holds open."""

import os
import threading
from collections.abc import Callable


def when_closed(pipe: int, end: Callable[[], None]) -> None:
    """Start a thread that calls `end` when no process holds the pipe's writing end any more.

    `pipe` is the descriptor of the reading end. Nothing may be written to the pipe. The kernel
    closes the writing end when its process ends, even by SIGKILL.
    """

    def watch() -> None:
        os.read(pipe, 1)
        end()

    threading.Thread(target=watch, daemon=True).start()
