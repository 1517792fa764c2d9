"""Notice the end of another process, by a pipe whose writing end it holds."""

import os
import threading
from collections.abc import Callable


def when_closed(pipe: int, end: Callable[[], None]) -> None:
    """Call `end`, in a thread, when no process holds the writing end of the pipe any more.

    `pipe` is the descriptor of the reading end. Nothing may be written to the pipe. The kernel
    closes the writing end when its process ends, also by SIGKILL.
    """

    def watch() -> None:
        os.read(pipe, 1)
        end()

    threading.Thread(target=watch, daemon=True).start()
