"""Work dealt to forked processes: on models too small for torch's threads, each runs one."""

import gc
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from traceback import format_exc
from typing import Any, TypeVar

import torch

from citer.lifeline import when_closed

T = TypeVar("T")
R = TypeVar("R")
Work = Callable[[Sequence[T]], Iterator[R]]

FORK = multiprocessing.get_context("fork")  # the models are shared, none is loaded twice


def spread(work: Work[T, R], items: Sequence[T], *, fork: bool) -> Iterator[R]:
    """Yield what `work` makes of the items, in whatever order.

    With `fork`, as many processes as torch has threads deal the items among them. Raises what
    `work` raises in one of them; none outlives this generator or its process.
    """
    count = torch.get_num_threads() if fork else 1
    if count == 1 or len(items) < count:
        yield from work(items)
        return
    workers: dict[Connection, ForkProcess] = {}
    try:
        for first in range(count):
            receiver, process = _start(work, items[first::count])
            workers[receiver] = process
        yield from _gather(workers)
    finally:
        for receiver, process in workers.items():
            process.kill()
            process.join()
            receiver.close()


def _start(work: Work[T, R], items: Sequence[T]) -> tuple[Connection, ForkProcess]:
    receiver, sender = FORK.Pipe(duplex=False)
    process = FORK.Process(target=_serve, args=(work, items, sender), daemon=True)
    process.start()
    sender.close()  # so that the pipe ends with the process
    return receiver, process


def _gather(workers: dict[Connection, ForkProcess]) -> Iterator[Any]:
    open_ends = list(workers)
    while open_ends:
        ready = wait(open_ends)
        for receiver in [end for end in open_ends if end in ready]:
            try:
                result = receiver.recv()
            except EOFError:
                open_ends.remove(receiver)
                workers[receiver].join()
                if status := workers[receiver].exitcode:
                    raise RuntimeError(f"a worker ended with exit status {status}") from None
                continue
            if isinstance(result, Exception):
                raise result
            yield result


def _serve(work: Work[T, R], items: Sequence[T], sender: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # ^C is the parent's to answer
    parent = multiprocessing.parent_process()
    assert parent
    when_closed(parent.sentinel, partial(os.kill, os.getpid(), signal.SIGKILL))
    torch.set_num_threads(1)  # OpenMP's own threads did not survive the fork
    gc.freeze()  # the collector need not look again and again at all that was there before
    try:
        for result in work(items):
            sender.send(result)
    except Exception as error:
        error.add_note(format_exc())
        sender.send(error)
    os._exit(0)  # flushing no stream, whose lock another thread may have held at the fork
