"""The user's questions, in versions."""

from pathlib import Path
from typing import Annotated

import typer

from citer.cli.extra import need_pipeline
from citer.config.params import load_params

data = typer.Typer(no_args_is_help=True, help="Version your questions in data/own.")


@data.callback()
def _group() -> None:
    """Keep `add` a command of its own: typer merges a single one into its group."""


@data.command()
def add(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE…", help="JSON, JSON Lines, Parquet, CSV; or traffic folders."),
    ],
) -> None:
    """Check files as `prepare` would, copy them into data/own, and version them with DVC.

    Prints what to commit. `dvc push`, `dvc pull` and `citer restore` then include the questions.
    """
    need_pipeline("citer data add")
    params = load_params()
    from flows.own import add

    add(files, params)
