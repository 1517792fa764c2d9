"""The physical floor: the forwards that the engine ran, at the same shapes, with nothing else.

A forward of the floor reads a cache that needs no bookkeeping: its rows stand side by side and
are of one length. It must be no slower than transformers' own, `against_transformers` says.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import median_low
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import Cache, DynamicCache, StaticCache

from benchmarks.race import Race, race
from citer.models.pair import LanguageModel, Pair, kv_shape
from citer.models.router import Router


class Forward(NamedTuple):
    """Rows, new tokens of each (padding included), positions that the longest row attends to."""

    model: str
    rows: int
    tokens: int
    span: int

    @property
    def kind(self) -> str:
        if self.tokens == self.span:
            return "prefill"
        return "step" if self.tokens == 1 else "catch-up"


@dataclass(frozen=True)
class Recorded(LanguageModel):
    """A model that notes the shape of each forward in `log`."""

    log: list[Forward]

    def last_hidden(self, **inputs: Any) -> Tensor:
        rows, tokens = inputs["input_ids"].shape
        span = inputs["attention_mask"].shape[-1]
        self.log.append(Forward(self.name, rows, tokens, span))
        return super().last_hidden(**inputs)


def recorded(pair: Pair) -> tuple[Pair, list[Forward]]:
    """The pair with both its models writing one log."""
    log: list[Forward] = []
    slm, llm = (
        Recorded(model.name, model.path, model.digest, model.network, log)
        for model in (pair.slm, pair.llm)
    )
    return replace(pair, slm=slm, llm=llm), log


class Floor:
    """Runs forwards back to back, with the router after each of the SLM's."""

    def __init__(self, pair: Pair, router: Router, forwards: Sequence[Forward]) -> None:
        self.forwards = forwards
        self._router = router
        self._bare = {
            model.name: BareModel(model, [f for f in forwards if f.model == model.name])
            for model in (pair.slm, pair.llm)
        }

    @torch.inference_mode()
    def run(self) -> None:
        for forward in self.forwards:
            hidden_NH = self._bare[forward.model].forward(forward)
            if forward.model == "slm":
                self._router.score(hidden_NH)


class BareModel:
    """A model's forwards, all inputs ready."""

    def __init__(self, model: LanguageModel, forwards: Iterable[Forward]) -> None:
        shapes = [(forward.rows, forward.tokens, forward.span) for forward in forwards]
        rows, tokens, span = (max(column) for column in zip((0, 0, 0), *shapes, strict=True))
        self.model = model
        self._cache = BareCache(model, rows, span)
        self._ids = torch.zeros(rows, tokens, dtype=torch.long, device=model.device)
        self._position_1P = torch.arange(span, device=model.device)[None]
        self._mask = cache(self._make_mask)

    def forward(self, forward: Forward) -> Tensor:
        """Run it, logits included; returns hidden_NH of each row's last token."""
        _, rows, tokens, span = forward
        self._cache.begin(rows, span - tokens, span)
        hidden_NTH = self.model.last_hidden(
            input_ids=self._ids[:rows, :tokens],
            attention_mask={"full_attention": self._mask(tokens, span)},
            position_ids=self._position_1P[:, span - tokens : span],
            past_key_values=self._cache,
            use_cache=True,
        )
        self.model.logits(hidden_NTH[:, -1])
        return hidden_NTH[:, -1]

    def _make_mask(self, tokens: int, span: int) -> Tensor | None:
        """mask_11TP; none where attention to all, or plainly causal, is meant."""
        if tokens in (1, span):
            return None
        position_P = self._position_1P[0, :span]
        return (position_P <= position_P[span - tokens :, None])[None, None]


class BareCache(Cache):
    """Written in place, read as views."""

    def __init__(self, model: LanguageModel, rows: int, span: int) -> None:
        super().__init__(layers=[])
        layers, heads, head_dim = kv_shape(model.network.config)
        shape = (2, layers, rows, heads, span, head_dim)
        self._kv_2LNHPD = torch.zeros(shape, dtype=model.dtype, device=model.device)

    def begin(self, rows: int, start: int, end: int) -> None:
        self._rows, self._start, self._end = rows, start, end

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        keys, values = self._kv_2LNHPD[:, layer_idx, : self._rows, :, : self._end]
        keys[:, :, self._start :] = key_states
        values[:, :, self._start :] = value_states
        return keys, values


class Check(NamedTuple):
    """A typical forward of one kind: against transformers' own, and the bytes that it moved."""

    forward: Forward
    slowdown: float  # seconds over those of the faster of transformers' two caches
    bandwidth: float  # bytes of weights, keys and values a second


def against_transformers(pair: Pair, forwards: Iterable[Forward]) -> list[Check]:
    """A check for each model and kind of forward, at the middle one of the shapes that ran."""
    kinds: dict[tuple[str, str], list[Forward]] = {}
    for forward in forwards:
        kinds.setdefault((forward.model, forward.kind), []).append(forward)
    models = {"slm": pair.slm, "llm": pair.llm}
    return [_check(models[model], median_low(ran)) for (model, _), ran in kinds.items()]


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
        # Not by `logits_to_keep`: of unfolded rows, torch multiplies with a copy of the head.
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
    """The cache, holding what was before the forward's tokens."""
    layers, heads, head_dim = kv_shape(model.network.config)
    past = (forward.rows, heads, forward.span - forward.tokens, head_dim)
    for layer in range(layers):
        states = torch.zeros(past, dtype=model.dtype, device=model.device)
        cached.update(states, states, layer)
    return cached


def copy_bandwidth(device: torch.device) -> float:
    """Bytes read and written a second by one big copy."""
    source = torch.ones(2**28, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)

    def copy() -> int:
        target.copy_(source)
        return 2 * source.nbytes

    return race("memory copy", {"copy": copy}).speed("copy")
