"""A profile for people and for programs."""

from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from citer.models.size import ModelSize
from citer.pairs.profile import BATCHES, FRACTIONS, GIB, Profile

UNITS = ((2**40, "TiB"), (GIB, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))


def show(profile: Profile) -> None:
    """Print the models, the fit, and the cost of routing."""
    console = Console()
    for part in (_models(profile), _fit(profile), *_routing(profile)):
        console.print(part, highlight=False, soft_wrap=isinstance(part, str))


def numbers(profile: Profile) -> dict[str, Any]:
    """Return the same numbers, in bytes. Those of routing are None if the tokenizers differ."""
    batches = () if profile.differing else BATCHES
    return {
        "models": {"slm": _facts(profile.slm), "llm": _facts(profile.llm)},
        "needed_bytes": profile.needed,
        "fits_one_device": profile.fits_one,
        "left_bytes": profile.left,
        "tokenizers_differ": None if profile.uncompared else bool(profile.differing),
        "cost": {b.name: {str(f): profile.cost(f, b) for f in FRACTIONS} for b in batches} or None,
        "pays_to": {batch.name: profile.pays_to(batch) for batch in batches} or None,
    }


def _facts(size: ModelSize) -> dict[str, Any]:
    card = size.model.card
    return {
        "path": str(card.path),
        "parameters": size.parameters,
        "all_weight_bytes": size.resident,
        "weight_bytes": card.weight_bytes,
        "kv_bytes": card.kv_bytes,
        "context": card.context,
        "vocab_size": card.vocab_size,
        "quantised": size.quantised,
        "source": size.source,
    }


def _models(profile: Profile) -> Table:
    table = Table("", "SLM", "LLM", box=box.SIMPLE_HEAD)
    rows: dict[str, Callable[[ModelSize], str]] = {
        "folder": lambda size: str(size.model.path),
        "parameters": lambda size: _count(size.parameters),
        "all weights": lambda size: _size(size.resident),
        "weights read per token": lambda size: _size(size.model.weight_bytes),
        "KV cache per position": lambda size: _size(size.model.kv_bytes),
        "context": lambda size: f"{size.model.card.context:,} positions",
        "vocabulary": lambda size: f"{size.model.vocab_size:,} ids",
        "precision": _precision,
        "read from": lambda size: size.source,
    }
    for name, value in rows.items():
        table.add_row(name, value(profile.slm), value(profile.llm))
    return table


def _precision(size: ModelSize) -> str:
    plain = str(size.model.dtype).removeprefix("torch.")
    return f"quantised, the rest {plain}" if size.quantised else plain


def _fit(profile: Profile) -> str:
    setting = profile.setting
    caches = profile.kv(profile.slm) + profile.kv(profile.llm)
    devices = f"{setting.devices} x {setting.memory:g} GiB"
    lines = [
        f"Memory: {_size(profile.needed)} for both models, with {_size(caches)} of KV cache for "
        f"{setting.slots} slots x {setting.positions:,} positions."
    ]
    if profile.left is None:
        lines += [f"The models do not fit on {devices}."]
    elif profile.fits_one:
        lines += [f"They fit on one device; {_size(profile.left[0])} are left."]
    else:
        left = ", ".join(map(_size, profile.left))
        lines += [f"They fit on {devices} with pair.llm_device_map: auto; left: {left}."]
    lines += ["Activations and the runtime need memory, too: leave 10 % of each device."]
    return "\n".join(lines) + "\n"


def _routing(profile: Profile) -> Iterator[str | Table]:
    if profile.differing:
        part = f"their `{profile.differing}` differ"
        yield f"No routing between these models: they have two tokenizers, {part}."
        return
    yield _costs(profile)
    yield from _verdicts(profile)
    if profile.uncompared:
        yield f"{profile.uncompared}: no tokenizer.json, so the tokenizers were not compared."


def _costs(profile: Profile) -> Table:
    table = Table("batch", box=box.SIMPLE_HEAD, title_justify="left")
    table.title = "Bytes moved by routed decoding at LLM share f; LLM alone = 1"
    for head in (*(f"f {fraction:g}" for fraction in FRACTIONS), "pays up to"):
        table.add_column(head, justify="right")
    for batch in BATCHES:
        costs = (f"{profile.cost(fraction, batch):.2f}" for fraction in FRACTIONS)
        name = f"{batch.slots} delayed" if batch.delayed else str(batch.slots)
        table.add_row(name, *costs, f"{profile.pays_to(batch):g}")
    return table


def _verdicts(profile: Profile) -> Iterator[str]:
    yield (
        "f: the LLM's share of the tokens. Delayed: it waits until half of the batch needs it. "
        "No draft is rejected here. Audits reject some, and each costs more bytes.\n"
    )
    for slots in sorted({batch.slots for batch in BATCHES}):
        of_size = (batch for batch in BATCHES if batch.slots == slots)
        share, best = max(((profile.pays_to(b), b) for b in of_size), key=itemgetter(0))
        how = ", with the LLM delayed" if best.delayed else ""
        verdict = f"can pay up to f = {share:g}{how}, without rejected drafts"
        verdict = verdict if share else "cannot pay"
        yield f"Batch {slots}: routing {verdict}."


def _count(number: int) -> str:
    for unit, name in ((10**9, "B"), (10**6, "M"), (10**3, "K")):
        if number >= unit:
            return f"{number / unit:.3g} {name}"
    return str(number)


def _size(number: int) -> str:
    unit, name = next(pair for pair in UNITS if number >= pair[0] or pair[0] == 1)
    return f"{number / unit:.4g} {name}"
