"""Graphs where there is no GPU."""

from collections.abc import Callable

from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

from citer.models.cache import SlotCache
from citer.models.capture import Run
from citer.models.graphs import Graphs
from citer.models.pair import LanguageModel


def uncaptured(model: LanguageModel, cache: SlotCache) -> Graphs:
    """Forwards at fixed shapes, but run from Python each time."""
    return Graphs(model, cache, lambda: lambda forward: forward)


class Traced:
    """As on a GPU: what is replayed are a forward's operations, on the tensors that it met.

    Neither the host's code nor what it knew comes again.
    """

    def __init__(self) -> None:
        self.captures = 0

    def __call__(self, model: LanguageModel, cache: SlotCache) -> Graphs:
        return Graphs(model, cache, lambda: self._capture)

    def _capture(self, forward: Run) -> Callable[[], Tensor]:
        self.captures += 1
        return make_fx(forward)()
