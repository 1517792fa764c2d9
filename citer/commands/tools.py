"""Commands for developers: make the embedded pair, measure speed."""

from pathlib import Path
from typing import Annotated

import typer

from citer.config import load_params

EMBEDDED = Path("data/pair")
ROWS = (  # of benchmarks/bench.py, which imports torch
    "1 floor, 2 embedded-floor, 3 alone, 4 naive, 5 batches, 6 scoring, 7 labelling, 8 sweep, "
    "9 memory, 11 graphs, 12 audited"
)


def pretrain() -> None:
    """Train the embedded pair of models again and replace data/pair.

    Takes about ten minutes on a free core. Every router of the old pair becomes invalid, unless
    the new models have the same bytes.
    """
    load_params()  # raises InputError if this folder is not a project
    from citer.pretrain import make_pair

    make_pair(EMBEDDED, seed=17)  # not the folders in params.yaml: they may be the user's own


def bench(
    rows: Annotated[
        list[str] | None,
        typer.Argument(metavar="ROW", help=f"Numbers or names: {ROWS}. Default: all rows."),
    ] = None,
    pair: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="embedded, cpu-fp32, cpu-bf16 or gpu. May be repeated. "
            "Default: each row's own pairs.",
        ),
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Number of torch's threads.")] = None,
    out: Annotated[Path, typer.Option(help="File for the report, JSON.")] = Path(
        "benchmarks/results/bench.json"
    ),
) -> None:
    """Compare speed and memory with what the hardware allows (benchmarks/README.md).

    All rows together take hours.
    """
    load_params()
    from benchmarks.bench import run

    run(rows or [], pair or [], threads, out)
