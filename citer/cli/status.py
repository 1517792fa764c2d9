"""`citer status`: where the promises of served versions stand."""

from typing import Annotated

import typer

from citer.stages import paths


def status(
    evidence: Annotated[
        str,
        typer.Option(
            envvar="CITER_EVIDENCE",
            help="Where the servers keep their evidence: a file, or an address of Postgres.",
        ),
    ] = str(paths.EVIDENCE),
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
