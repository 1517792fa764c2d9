"""The floor of a decode: its forwards alone, at the same shapes, without any other work.

The inputs are ready, and the cache is large enough and holds the rows side by side.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from citer.models.batch import Batch, lay_out
from citer.models.cache import SlotCache
from citer.models.pair import LanguageModel, Pair
from citer.models.router import Head, features
from citer.models.stock import KVCache


class Forward(NamedTuple):
    """The shape of a forward. Per row: cached tokens, new tokens, and how many get logits."""

    model: str
    starts: tuple[int, ...]
    counts: tuple[int, ...]
    wanted: tuple[int, ...]

    @classmethod
    def of(cls, model: str, batch: Batch) -> "Forward":
        start_N = batch.side_by_side(batch.position_M)[:, 0]
        counts, wanted = _run_lengths(batch.slot_M), _run_lengths(batch.wanted(batch.slot_M))
        return cls(model, tuple(start_N.tolist()), counts, wanted)

    def batch(self, device: torch.device) -> Batch:
        """Return the batch that the forward reads, with its rows in the first slots."""
        slots, wanted = list(range(self.rows)), list(self.wanted)
        return lay_out(slots, list(self.starts), list(self.counts), wanted, device)

    @property
    def rows(self) -> int:
        return len(self.counts)

    @property
    def span(self) -> int:
        """Positions that the longest row attends to."""
        return max(map(sum, zip(self.starts, self.counts, strict=True)))


def _run_lengths(values_M: Tensor) -> tuple[int, ...]:
    return tuple(torch.unique_consecutive(values_M, return_counts=True)[1].tolist())


@dataclass(frozen=True)
class Recorded(LanguageModel):
    """A model that appends the shape of each forward to `log`. Works only without CUDA graphs."""

    log: list[Forward]

    def consume(self, ids_M: Tensor, batch: Batch, cache: KVCache) -> Tensor:
        self.log.append(Forward.of(self.name, batch))
        return super().consume(ids_M, batch, cache)


def recorded(pair: Pair) -> tuple[Pair, list[Forward]]:
    """Return the pair with both models recorded, and their common log."""
    log: list[Forward] = []
    slm, llm = (
        Recorded(model.name, model.path, model.digest, model.network, log)
        for model in (pair.slm, pair.local_llm)
    )
    return replace(pair, slm=slm, llm=llm), log


class Floor:
    """Runs recorded forwards back to back, with the router's head after each of the SLM's.

    A run stands for an `amount` of work, such as the tokens that the forwards wrote.
    """

    def __init__(
        self, pair: Pair, head: Head, forwards: Sequence[Forward], amount: int = 1
    ) -> None:
        self.forwards, self.amount = forwards, amount
        self._head = head
        self._vocabulary = pair.vocabulary
        self._bare = {
            model.name: _BareModel(model, [f for f in forwards if f.model == model.name])
            for model in (pair.slm, pair.local_llm)
        }

    @torch.inference_mode()
    def run(self) -> int:
        """Run the forwards, and return the amount of work."""
        for forward in self.forwards:
            hidden_WH, logits_WV = self._bare[forward.model].forward(forward)
            if forward.model == "slm":
                self._head.score(features(hidden_WH, self._vocabulary.choices(logits_WV)))
        return self.amount


class _BareModel:
    """A model, with the inputs of its recorded forwards prepared."""

    def __init__(self, model: LanguageModel, forwards: Iterable[Forward]) -> None:
        self._batches = {each: each.batch(model.device) for each in forwards}
        rows = max((forward.rows for forward in self._batches), default=0)
        span = max((forward.span for forward in self._batches), default=0)
        tokens = max((sum(forward.counts) for forward in self._batches), default=0)
        self.model = model
        self._cache = SlotCache(model.network, rows)
        self._cache.reserve(span)
        self._ids_M = torch.zeros(tokens, dtype=torch.long, device=model.device)

    def forward(self, forward: Forward) -> tuple[Tensor, Tensor]:
        """Run a forward; return hidden_WH and logits_WV of the wanted tokens."""
        ids_M = self._ids_M[: sum(forward.counts)]
        hidden_WH = self.model.consume(ids_M, self._batches[forward], self._cache)
        return hidden_WH, self.model.logits(hidden_WH)
