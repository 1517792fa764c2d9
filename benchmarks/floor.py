"""The floor of a decode: its forwards alone, at the same shapes, without any other work.

The inputs are ready, and the cache is large enough and holds the rows side by side.
`against_transformers` checks that these forwards are no slower than transformers' own.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import Cache, DynamicCache, StaticCache

from benchmarks.race import Race, race
from citer.decoding.answer import Work
from citer.models.batch import Batch, lay_out
from citer.models.cache import SlotCache, kv_shape
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

    @property
    def rows(self) -> int:
        return len(self.counts)

    @property
    def tokens(self) -> int:
        """New tokens of the row with the most."""
        return max(self.counts)

    @property
    def span(self) -> int:
        """Positions that the longest row attends to."""
        return max(map(sum, zip(self.starts, self.counts, strict=True)))

    @property
    def kind(self) -> str:
        if not any(self.starts):
            return "prefill"
        return "step" if self.tokens == 1 else "catch-up"

    def even(self) -> "Forward":
        """Return the shape padded to the longest row, as transformers needs it."""
        row = (self.span - self.tokens, self.tokens, 1)
        return Forward(self.model, *((number,) * self.rows for number in row))


def _run_lengths(values_M: Tensor) -> tuple[int, ...]:
    return tuple(torch.unique_consecutive(values_M, return_counts=True)[1].tolist())


def work(forwards: Iterable[Forward], model: str) -> Work:
    """Return the total work of a model's forwards."""
    total = Work()
    for _, starts, counts, _ in (forward for forward in forwards if forward.model == model):
        total.add(sum(counts), sum(starts) + sum(counts))
    return total


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
    """Run recorded forwards back to back, with the router's head after each of the SLM's."""

    def __init__(self, pair: Pair, head: Head, forwards: Sequence[Forward]) -> None:
        self.forwards = forwards
        self._head = head
        self._vocabulary = pair.vocabulary
        self._bare = {
            model.name: BareModel(model, [f for f in forwards if f.model == model.name])
            for model in (pair.slm, pair.local_llm)
        }

    @torch.inference_mode()
    def run(self) -> None:
        for forward in self.forwards:
            hidden_WH, logits_WV = self._bare[forward.model].forward(forward)
            if forward.model == "slm":
                self._head.score(features(hidden_WH, self._vocabulary.choices(logits_WV)))


class BareModel:
    """A model, with the inputs of its recorded forwards prepared."""

    def __init__(self, model: LanguageModel, forwards: Iterable[Forward]) -> None:
        batches = {forward: _batch(forward, model.device) for forward in forwards}
        rows = max((forward.rows for forward in batches), default=0)
        span = max((forward.span for forward in batches), default=0)
        tokens = max((sum(forward.counts) for forward in batches), default=0)
        self.model = model
        self._batches = batches
        self._cache = SlotCache(model.network, rows)
        self._cache.reserve(span)
        self._ids_M = torch.zeros(tokens, dtype=torch.long, device=model.device)

    def forward(self, forward: Forward) -> tuple[Tensor, Tensor]:
        """Run a forward; return hidden_WH and logits_WV of the wanted tokens."""
        ids_M = self._ids_M[: sum(forward.counts)]
        hidden_WH = self.model.consume(ids_M, self._batches[forward], self._cache)
        return hidden_WH, self.model.logits(hidden_WH)


def _batch(forward: Forward, device: torch.device) -> Batch:
    slots = list(range(forward.rows))
    _, starts, counts, wanted = forward
    return lay_out(slots, list(starts), list(counts), list(wanted), device)


class Check(NamedTuple):
    """A typical forward of one kind: its time against transformers' own, and its bandwidth."""

    forward: Forward
    slowdown: float  # seconds / seconds with the faster of transformers' two caches
    bandwidth: float  # bytes of weights, keys and values per second


def against_transformers(pair: Pair, forwards: Iterable[Forward]) -> list[Check]:
    """Check each model and kind of forward at the median shape."""
    kinds: dict[tuple[str, str], list[Forward]] = {}
    for forward in forwards:
        kinds.setdefault((forward.model, forward.kind), []).append(forward)
    models = {"slm": pair.slm, "llm": pair.local_llm}
    return [_check(models[model], _middle(ran).even()) for (model, _), ran in kinds.items()]


def _middle(forwards: list[Forward]) -> Forward:
    """Return the forward of median shape."""
    ordered = sorted(forwards, key=lambda ran: (ran.rows, ran.tokens, ran.span))
    return ordered[(len(ordered) - 1) // 2]


def _check(model: LanguageModel, forward: Forward) -> Check:
    timed = _race_caches(model, forward)
    own = max(timed.speed("dynamic"), timed.speed("static"))
    moved = model.weight_bytes + forward.rows * forward.span * model.kv_bytes
    return Check(forward, own / timed.speed("bare"), moved * timed.speed("bare"))


@torch.inference_mode()
def _race_caches(model: LanguageModel, forward: Forward) -> Race:
    bare = BareModel(model, [forward])
    config = model.network.config
    dynamic = _filled(DynamicCache(config=config), model, forward)
    static = _filled(StaticCache(config, max_cache_len=forward.span), model, forward)
    ids_NT = torch.zeros(forward.rows, forward.tokens, dtype=torch.long, device=model.device)

    def run_bare() -> int:
        bare.forward(forward)
        return 1

    def run_own(cached: Cache) -> None:
        out = model.network.base_model(input_ids=ids_NT, past_key_values=cached)
        # Not with `logits_to_keep`: torch would copy the head to multiply unfolded rows.
        model.logits(out.last_hidden_state[:, -1])

    def run_dynamic() -> int:
        run_own(dynamic)
        dynamic.crop(-forward.tokens)
        return 1

    def run_static() -> int:
        run_own(static)
        static_layers: Any = static.layers
        for layer in static_layers:
            layer.cumulative_length -= forward.tokens
        return 1

    title = f"{forward.model} {forward.kind} {forward.rows}x{forward.tokens} of {forward.span}"
    return race(title, {"bare": run_bare, "dynamic": run_dynamic, "static": run_static})


def _filled(cached: Cache, model: LanguageModel, forward: Forward) -> Cache:
    """Fill the cache with the positions before the forward's tokens."""
    layers, heads, head_dim = kv_shape(model.network.config)
    past = (forward.rows, heads, forward.span - forward.tokens, head_dim)
    for layer in range(layers):
        states = torch.zeros(past, dtype=model.dtype, device=model.device)
        cached.update(states, states, layer)
    return cached


def copy_bandwidth(device: torch.device) -> float:
    """Return the bytes read and written per second by a large copy."""
    source = torch.ones(2**28, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)

    def copy() -> int:
        target.copy_(source)
        return 2 * source.nbytes

    return race("memory copy", {"copy": copy}).speed("copy")
