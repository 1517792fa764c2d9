"""`citer status`: where the promises of served versions stand."""

from pathlib import Path
from typing import Annotated

import typer

from citer.stages import paths


def status(
    evidence: Annotated[
        Path, typer.Option(help="File in which the servers of this machine keep their evidence.")
    ] = paths.EVIDENCE,
    step_forward: Annotated[
        str | None,
        typer.Option(
            metavar="NAME/VERSION",
            help="Put the rule before the one in force into force again. Refused unless the "
            "evidence says that it keeps the promise.",
        ),
    ] = None,
) -> None:
    """Show for each served version the rule in force, its promise, and the evidence of traffic.

    Servers write it if serve.shadow in params.yaml is above 0.
    """
    from citer.serving import status

    if step_forward:
        status.step_forward(evidence, step_forward)
    status.show(evidence)
