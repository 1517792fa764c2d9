"""Capturing a forward as a CUDA graph. No GPU has run it yet."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

WARM_UPS = 3  # as in torch.cuda.make_graphed_callables

Run = Callable[[], Tensor]
Capture = Callable[[Run], Run]


def cuda_capture() -> Capture:
    """Graphs that share memory: only one runs at a time, and its output is read before the next.

    A new pool each time: torch refuses one all of whose graphs are gone.
    """
    stream, pool = torch.cuda.Stream(), torch.cuda.graph_pool_handle()

    def capture(forward: Run) -> Run:
        # On the stream of the capture, so that cuBLAS has its workspace there already.
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UPS):
                forward()
        graph = torch.cuda.CUDAGraph()
        with _no_collection(), torch.cuda.graph(graph, pool=pool, stream=stream):
            out = forward()

        def replay() -> Tensor:
            graph.replay()
            return out

        return replay

    return capture


@contextmanager
def _no_collection() -> Iterator[None]:
    """A graph that is collected as garbage while another is captured spoils it."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
