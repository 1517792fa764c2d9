"""Commands of the pipeline (`flows`): start retrainings, manage the registered routers."""

import sys
from typing import Annotated

import typer

from citer.commands.extra import need_pipeline
from citer.config import load_params

Version = Annotated[int, typer.Argument(min=1, help="Number of a registered version.")]


def run() -> None:
    """Run the whole retraining: every stage, registration, promotion."""
    need_pipeline("citer run")
    load_params()  # bad parameters end the command before a server starts
    from flows.leash import held

    # Prefect's temporary server would outlive a killed run.
    raise SystemExit(held([sys.executable, "-m", "flows"]))


def schedule(
    cron: Annotated[str, typer.Option(help='Times as a cron string (UTC), such as "0 3 * * 1".')],
) -> None:
    """Stay running and start a retraining at the given times. Needs PREFECT_API_URL."""
    need_pipeline("citer schedule")
    from flows.deploy import serve

    serve(cron)


def compare() -> None:
    """Show the champion and the challenger side by side."""
    need_pipeline("citer compare")
    from flows.compare import compare

    compare()


def promote(version: Version) -> None:
    """Make a registered version the champion. To roll back, give an older version."""
    need_pipeline("citer promote")
    from flows.registry import promote

    promote(version)


def restore(version: Version) -> None:
    """Restore params.yaml, dvc.lock and all outputs to those of a version."""
    need_pipeline("citer restore")
    from flows.restore import restore

    restore(version)
