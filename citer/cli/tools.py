"""Commands beside the stages: size up a pair, measure speed, make the embedded pair."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from citer.config.pair import Weights
from citer.config.params import load_params
from citer.errors import InputError

# of benchmarks/bench.py, which imports torch
ROWS = "alone, graphs"
PAIRS = "cpu-bf16 or gpu"
REPORT = Path("benchmarks/results/bench.json")
Dtype = StrEnum("Dtype", ["float32", "bfloat16", "float16", "float64"])


def profile(
    slm: Annotated[Path | None, typer.Option(help="Model folder. Default: pair.slm.")] = None,
    llm: Annotated[Path | None, typer.Option(help="Model folder. Default: pair.llm.")] = None,
    dtype: Annotated[Dtype | None, typer.Option(help="Precision. Default: pair.dtype.")] = None,
    devices: Annotated[int, typer.Option(min=1, max=1024, help="Number of devices.")] = 1,
    memory: Annotated[float, typer.Option(min=0.1, max=1e6, help="GiB of each device.")] = 80,
    slots: Annotated[int, typer.Option(min=1, max=2**14, help="Sequences at once.")] = 32,
    positions: Annotated[int, typer.Option(min=2, max=2**24, help="Tokens of a sequence.")] = 512,
) -> None:
    """Show what a pair needs and whether routing can pay, without its weights.

    Reads config.json and the headers of the weight files; these may be missing. With --slm, --llm
    and --dtype, it needs no params.yaml. After `citer probe`, it also shows what exact rules would
    save at these sizes, if the two models agree as often as the probed ones.
    """
    from citer.models.size import ModelSize
    from citer.pairs.profile import Agreement, Profile, show, show_agreement
    from citer.stages import paths
    from citer.storage.tables import read_as, read_json

    weights: Weights = "stored"
    if not (slm and llm and dtype):
        params = load_params()
        slm, llm = slm or Path(params.pair.slm), llm or Path(params.pair.llm)
        dtype = dtype or Dtype(params.pair.dtype)
        weights = params.pair.slm_weights
    sizes = ModelSize.of(slm, dtype, weights), ModelSize.of(llm, dtype)
    sized = Profile(*sizes, devices, memory, slots, positions)
    show(sized)
    if paths.AGREEMENT.exists() and not sized.differing:
        reached = paths.SUMMARY / "headline.json"
        share = read_json(reached)["llm_fraction"] if reached.exists() else None
        show_agreement(sized, read_as(paths.AGREEMENT, Agreement), share)


def pretrain() -> None:
    """Train the embedded pair of models again and replace data/pair.

    Takes about ten minutes on a free core. Every router of the old pair becomes invalid, unless
    the new models have the same bytes.
    """
    _need_benchmarks("pretrain")
    from benchmarks.pretrain import make_pair

    # Not to the folders in params.yaml: they may be the user's own.
    make_pair(Path("data/pair"), seed=17)


def bench(
    rows: Annotated[
        list[str] | None, typer.Argument(metavar="ROW", help=f"{ROWS}. Default: all rows.")
    ] = None,
    pair: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help=f"{PAIRS}; may be repeated. Default: each row's own."),
    ] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Number of torch's threads.")] = None,
    out: Annotated[Path, typer.Option(resolve_path=True, help="File for the report.")] = REPORT,
) -> None:
    """Compare speed with what the hardware allows (benchmarks/README.md).

    All rows together take hours.
    """
    _need_benchmarks("bench")
    from benchmarks.bench import run

    run(rows or [], pair or [], threads, out)


def _need_benchmarks(command: str) -> None:
    """Raise InputError if this folder is not a clone of the repository."""
    load_params()
    if not Path("benchmarks/bench.py").is_file():
        expected = "expected a clone of the repository"
        raise InputError(f"{command}: no folder benchmarks here; {expected}")
