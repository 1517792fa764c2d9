"""Commands for developers: make the embedded pair, measure speed."""

from pathlib import Path
from typing import Annotated

import typer

from citer.config import load_params

EMBEDDED = Path("data/pair")


def pretrain() -> None:
    """Train the embedded pair of models again and replace data/pair."""
    load_params()  # raises InputError if this folder is not a project
    from citer.pretrain import make_pair

    make_pair(EMBEDDED, seed=17)  # not the folders in params.yaml: they may be the user's own


def bench(
    rows: Annotated[
        list[str] | None, typer.Argument(help="Numbers or names of rows. Default: all rows.")
    ] = None,
    pair: Annotated[
        list[str] | None,
        typer.Option(help="embedded, cpu-fp32, cpu-bf16 or gpu. Default: the row's own pairs."),
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Number of torch's threads.")] = None,
    out: Annotated[Path, typer.Option(help="File for the report, JSON.")] = Path(
        "benchmarks/results/bench.json"
    ),
) -> None:
    """Compare speed and memory with what the hardware allows (benchmarks/README.md)."""
    load_params()
    from benchmarks.bench import run

    run(rows or [], pair or [], threads, out)
