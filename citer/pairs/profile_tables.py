"""A profile as tables."""

from collections.abc import Callable, Iterator

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
        part = f"their `{profile.differing}` differ"
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


def _size(number: int) -> str:
    unit, name = next(pair for pair in UNITS if number >= pair[0] or pair[0] == 1)
    return f"{number / unit:.4g} {name}"
