"""Capture a forward as a CUDA graph. No GPU has run this code yet."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

WARM_UPS = 3  # as in torch.cuda.make_graphed_callables

Run = Callable[[], Tensor]
Capture = Callable[[Run], Run]


def cuda_capture() -> Capture:
    """Make a `Capture` whose graphs share one memory pool.

    They can share it because one graph runs at a time, and its output is read before the next one
    runs. Each call makes a new pool, since torch refuses a pool after all its graphs are freed.
    """
    stream, pool = torch.cuda.Stream(), torch.cuda.graph_pool_handle()

    def capture(forward: Run) -> Run:
        # Warm up on the stream of the capture, so that cuBLAS allocates its workspace there.
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
    """Disable garbage collection: freeing a graph during a capture invalidates the capture."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
