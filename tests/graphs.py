"""Imitations of CUDA graphs for machines without a GPU."""

from collections.abc import Callable

from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from citer.models.cache import SlotCache
from citer.models.graphs import Graphs, Run
from citer.models.pair import LanguageModel


def uncaptured(model: LanguageModel, cache: SlotCache) -> Graphs:
    """Make graphs that run forwards at fixed shapes from Python each time."""
    return Graphs(model, cache, lambda: lambda forward: forward)


class Traced:
    """Makes graphs that replay the operations of a traced forward on the same tensors.

    As on a GPU, a replay runs no Python code, and sees no values that Python had.
    """

    def __init__(self) -> None:
        self.captures = 0

    def __call__(self, model: LanguageModel, cache: SlotCache) -> Graphs:
        return Graphs(model, cache, lambda: self._capture)

    def _capture(self, forward: Run) -> Callable[[], Tensor]:
        self.captures += 1
        return make_fx(forward)()
