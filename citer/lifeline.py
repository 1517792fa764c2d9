"""Die with another process: it holds one end of a pipe, and we watch the other."""

import os
import threading
from collections.abc import Callable


def when_closed(pipe: int, end: Callable[[], None]) -> None:
    """Call `end`, in a thread, once no process holds the writing end of `pipe`.

    `pipe` is the descriptor of the reading end. Nobody may write to it. The kernel closes the
    writing end with its process, also after a SIGKILL.
    """

    def watch() -> None:
        os.read(pipe, 1)
        end()

    threading.Thread(target=watch, daemon=True).start()
