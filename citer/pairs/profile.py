"""What a pair needs and what routing can save, before any weight is loaded.

Costs are those of `citer.evaluation.cost`: bytes moved, relative to the LLM alone at the same batch
size. The answers are made up. At LLM share f, each token is the LLM's with probability f, and takes
a visit. The SLM drafts every token. No draft is rejected by an audit, so this is a floor.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product
from pathlib import Path
from random import Random

import torch
from rich import box
from rich.console import Console
from rich.table import Table

from citer.decoding.answer import Visit
from citer.evaluation.cost import Batch, Prices, Trace, batches
from citer.models.folder import ModelFolder, differing_part
from citer.models.room import check_fits
from citer.models.router import Head, RouterMLP
from citer.models.size import ModelSize
from citer.models.weights import refuse_quantised

FRACTIONS = (0.0, 0.05, 0.1, 0.2, 0.5, 1.0)
BATCHES = batches((1, 8, 32))
COLUMNS = [own for own in batches((8, 32, 128)) if own.slots == 1 or own.schedule == "delayed"]
ALONE, BOUND = "score 1", "bound"  # the LLM alone; visits only where the SLM is wrong
ANSWERS = 64
LONGEST = 128  # tokens of an answer
GIB = 2**30
UNITS = ((2**40, "TiB"), (GIB, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))
Forwards = Sequence[tuple[float, float]]  # of SLM and LLM for each answer, by COLUMNS


@dataclass(frozen=True)
class Agreement:
    """How often two models agree in `tokens`, and what follows: forwards of ALONE, BOUND, rules."""

    agreement: float
    tokens: int
    rules: Mapping[str, Forwards]


def forwards(traces: Sequence[Trace]) -> Forwards:
    """Return the forwards of both models for each answer."""
    works = (batch.work(traces) for batch in COLUMNS)
    return [(slm.forwards / len(traces), llm.forwards / len(traces)) for slm, llm in works]


@dataclass(frozen=True)
class Profile:
    """A pair on `devices` of `memory` GiB, which decode `slots` sequences of `positions` at once.

    Raises InputError if a sequence does not fit the models' context.
    """

    slm: ModelSize
    llm: ModelSize
    devices: int
    memory: float
    slots: int
    positions: int

    def __post_init__(self) -> None:
        context = min(each.model.card.context for each in (self.slm, self.llm))
        if self.slm.quantised:
            refuse_quantised(self.slm.model.path)
        check_fits("--positions", self.positions, context)

    @property
    def capacity(self) -> int:
        """Bytes of one device."""
        return round(self.memory * GIB)

    @cached_property
    def uncompared(self) -> Path | None:
        """The first folder that has no tokenizer, or None."""
        paths = (size.model.path for size in (self.slm, self.llm))
        return next((path for path in paths if not (path / "tokenizer.json").is_file()), None)

    @cached_property
    def differing(self) -> str | None:
        """The part in which the tokenizers differ, if both are there: routing needs equal ones."""
        if self.uncompared:
            return None
        return differing_part(*(ModelFolder(size.model.path) for size in (self.slm, self.llm)))

    @cached_property
    def prices(self) -> Prices:
        slm, llm = self.slm.model, self.llm.model
        with torch.device("meta"):
            head = Head(RouterMLP(slm.hidden_size, dropout=0))
        weights = slm.weight_bytes + head.weight_bytes, llm.weight_bytes
        return Prices(*weights, slm.kv_bytes, llm.kv_bytes)

    def kv(self, size: ModelSize) -> int:
        """Bytes of the KV cache of all slots."""
        return self.slots * self.positions * size.model.kv_bytes

    @property
    def needed(self) -> int:
        """Bytes of both models with their caches."""
        return sum(size.resident + self.kv(size) for size in (self.slm, self.llm))

    @property
    def fits_one(self) -> bool:
        return self.needed <= self.capacity

    @property
    def left(self) -> int:
        """Bytes that are left on one device, or on all together. Negative: the pair does not fit.

        The LLM's layers are whole, so a little may be left on each device.
        """
        devices = 1 if self.fits_one else self.devices
        return devices * self.capacity - self.needed

    def cost(self, fraction: float, batch: Batch) -> float:
        """Return the bytes of routed decoding at an LLM share, relative to the LLM alone."""
        routed, alone = (batch.work(own) for own in (self._routed(fraction), self._alone))
        return self.prices.moved(*routed) / self.prices.moved(*alone)

    def at_share(self, fraction: float) -> tuple[Forwards, Forwards]:
        """Return the forwards of routed decoding at an LLM share, and those of the LLM alone."""
        return forwards(self._routed(fraction)), forwards(self._alone)

    def moved(self, own: Forwards, column: int, positions: int, by_head: bool = False) -> float:
        """Return the bytes if each forward reads so many positions, which no two answers share.

        Each forward of the SLM reads the router's head if it scores the drafts.
        """
        prices, (slm, llm), (slm_rows, llm_rows) = self.prices, own[column], own[0]
        slm_weights = prices.slm_weights if by_head else self.slm.model.weight_bytes
        kv = slm_rows * prices.slm_kv + llm_rows * prices.llm_kv
        return slm * slm_weights + llm * prices.llm_weights + positions * kv

    def pays_to(self, batch: Batch) -> float:
        """Return the largest LLM share in percent steps with a cost below 1, or 0."""
        costly = bisect_left(range(101), True, key=lambda n: self.cost(n / 100, batch) >= 1)
        return max(costly - 1, 0) / 100

    def _routed(self, fraction: float) -> list[Trace]:
        random = Random(17)  # the same draws for every share: a larger one only adds visits
        traces = []
        for _ in range(ANSWERS):
            by_llm = [n for n in range(self._tokens) if random.random() < fraction]
            # Each is a visit, which replaces the SLM's draft of that token.
            visits = [Visit(n - last, n, n) for last, n in pairwise([-1, *by_llm])]
            traces.append(self._trace(visits))
        return traces

    @property
    def _alone(self) -> list[Trace]:
        return [self._trace([Visit(0, n, n) for n in range(self._tokens)])] * ANSWERS

    def _trace(self, visits: Sequence[Visit]) -> Trace:
        return Trace.of(self.positions - self._tokens, self._tokens, visits)

    @property
    def _tokens(self) -> int:
        """The length of an answer; the prompt has the remaining positions."""
        return min(LONGEST, self.positions // 2)


def show(profile: Profile) -> None:
    """Print the models, the fit, and the cost of routing."""
    console = Console()
    for part in (_models(profile), _fit(profile), *_routing(profile)):
        console.print(part, highlight=False, markup=False, soft_wrap=isinstance(part, str))


def _models(profile: Profile) -> Table:
    table = Table("", "SLM", "LLM", box=box.SIMPLE_HEAD)
    rows: dict[str, Callable[[ModelSize], str]] = {
        "folder": lambda size: str(size.model.card.path),
        "parameters": lambda size: f"{size.parameters:,}",
        "all weights": lambda size: _size(size.resident),
        "weights read per token": lambda size: _size(size.model.card.weight_bytes),
        "KV cache per position": lambda size: _size(size.model.card.kv_bytes),
        "context": lambda size: f"{size.model.card.context:,} positions",
        "vocabulary": lambda size: f"{size.model.card.vocab_size:,} ids",
        "quantised": lambda size: "yes" if size.quantised else "no",
        "read from": lambda size: size.source,
    }
    for name, shown in rows.items():
        table.add_row(name, shown(profile.slm), shown(profile.llm))
    return table


def _fit(profile: Profile) -> str:
    caches = profile.kv(profile.slm) + profile.kv(profile.llm)
    devices = f"{profile.devices} x {profile.memory:g} GiB"
    if profile.left < 0:
        fit = f"The models do not fit on {devices}."
    elif profile.fits_one:
        fit = f"They fit on one device; {_size(profile.left)} are left."
    else:
        left = f"{_size(profile.left)} are left in all, between whole layers"
        fit = f"They fit on {devices} with pair.llm_device_map: auto; {left}."
    return (
        f"Memory: {_size(profile.needed)} for both models, with {_size(caches)} of KV cache for "
        f"{profile.slots} slots x {profile.positions:,} positions.\n{fit}\n"
        "Activations and the runtime need memory, too: leave 10 % of each device.\n"
    )


def _routing(profile: Profile) -> Iterator[str | Table]:
    if profile.differing:
        part = f"their `{profile.differing}` differs"
        yield f"No routing between these models: they have two tokenizers, {part}."
        return
    yield _costs(profile)
    yield (
        "f: the LLM's share of the tokens. Delayed: it waits until half of the batch needs it. "
        "No draft is rejected here. Audits reject some, and each costs more bytes.\n"
    )
    if profile.uncompared:
        yield f"{profile.uncompared}: no tokenizer.json, so the tokenizers were not compared."


def _costs(profile: Profile) -> Table:
    table = Table("batch", box=box.SIMPLE_HEAD, title_justify="left")
    table.title = "Bytes moved by routed decoding at LLM share f; LLM alone = 1"
    for head in (*(f"f {fraction:g}" for fraction in FRACTIONS), "pays up to"):
        table.add_column(head, justify="right")
    for batch in BATCHES:
        costs = (f"{profile.cost(fraction, batch):.2f}" for fraction in FRACTIONS)
        name = f"{batch.slots} delayed" if batch.schedule == "delayed" else str(batch.slots)
        table.add_row(name, *costs, f"{profile.pays_to(batch):g}")
    return table


def show_agreement(profile: Profile, measured: Agreement, share: float | None) -> None:
    """Print what the best exact rules cost at these sizes, and routing with an LLM share."""
    drafted = [(rule, own) for rule, own in measured.rules.items() if " from " not in rule]
    columns = {
        kind: ([own for rule, own in drafted if kind in rule], measured.rules[ALONE], False)
        for kind in ("risk", "every", BOUND)
    }
    if share is not None:
        routed, alone = profile.at_share(share)
        columns[f"deployed, f {share:.3g}"] = [routed], alone, True
    where = f"{measured.agreement:.1%} of {measured.tokens:,} positions"
    title = f"The best exact rules, if the models agree at {where}: bytes, the LLM delayed"
    table = Table("batch", "positions", *columns, box=box.SIMPLE_HEAD, title=title)
    for positions, (n, batch) in product((1024, 8192), enumerate(COLUMNS)):
        costs = (
            min(profile.moved(each, n, positions, by_head) for each in own)
            / profile.moved(llm, n, positions)
            for own, llm, by_head in columns.values()
        )
        table.add_row(str(batch.slots), f"{positions:,}", *(f"{cost:.2f}" for cost in costs))
    Console().print(table, highlight=False, markup=False)


def _size(number: int) -> str:
    unit, name = next(pair for pair in UNITS if number >= pair[0] or pair[0] == 1)
    return f"{number / unit:.4g} {name}"
