"""`citer serve` and `citer status`: answer OpenAI's API with a router whose promise is watched."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from citer.cli.answers import (
    Folder,
    RouterOption,
    RuleOption,
    check_router,
    fetched,
    parse_rule,
    routed_by,
    settings,
)
from citer.cli.extra import need
from citer.config.params import Params
from citer.errors import InputError
from citer.rule import Rule
from citer.stages import paths

if TYPE_CHECKING:
    from citer.serving.promise import Standing, Step

Fetch = Callable[[str], AbstractContextManager[Path]]


def serve(
    router: RouterOption = None,
    rule: RuleOption = None,
    slm: Folder = None,
    llm: Folder = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on. Any but 127.0.0.1 needs keys.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free port.")] = 8000,
    queue: Annotated[int, typer.Option(min=0, help="How many requests may wait for a slot.")] = 256,
    poll: Annotated[
        float, typer.Option(min=0.1, help="Seconds between two looks at models:/NAME@ALIAS.")
    ] = 30,
    log: Annotated[
        Path | None,
        typer.Option(
            help="Folder for a log of questions and answers, as Parquet tables that only this user "
            "can read. `prepare.traffic` makes training rows of it."
        ),
    ] = None,
    redact: Annotated[
        str | None,
        typer.Option(
            help="MODULE:FUNCTION that gets each row of the log before it is stored. It returns "
            "the row to store, or None for no row. If it fails, the row is not stored."
        ),
    ] = None,
) -> None:
    """Answer OpenAI's API over HTTP: chat and text completions, also as streams.

    Needs params.yaml in the current folder, which has the LLM, the slots and the longest answer, or
    --slm and --llm. With CITER_API_KEYS=KEY,… in the environment, a client must send one of the
    keys. Without it, only this machine can ask. SIGTERM ends the server after its running requests.
    A router of the registry needs the extra "pipeline", too.
    """
    need("serve", "citer serve")
    params, parsed = settings(slm, llm, router), parse_rule(rule)
    if router:
        check_router(router)
    if redact and not log:
        raise InputError("--redact: expected --log, too")
    from citer.serving.evidence import Evidence, evidence_place
    from citer.serving.log import Traffic, load_hook
    from citer.serving.server.page import offered_questions
    from citer.serving.server.releases import Releases
    from citer.serving.server.run import listen, serve
    from citer.serving.server.service import Settings

    name, offered = params.register_.model_name, offered_questions(paths.referenced("validation"))
    limits = Settings(name, queue, poll, params.evaluate.sampling, offered)
    with (
        listen(host, port) as listener,
        closing(Traffic(log, load_hook(redact))) if log else nullcontext() as traffic,
        _source(router, params, parsed) as (latest, fetch, own),
    ):
        evidence = Evidence(evidence_place(paths.EVIDENCE)) if params.serve.shadow else None
        told = _tell if router and router.startswith("models:/") else None
        serve(limits, Releases(latest, fetch, params, own, traffic, evidence, told), listener)


@contextmanager
def _source(
    router: str | None, params: Params, rule: Rule | None
) -> Iterator[tuple[Callable[[], str], Fetch, Rule | None]]:
    """Yield what names the router that serves now, what fetches it, and the rule in its place."""
    if router and router.startswith("models:/"):  # its alias may move
        from flows.tracking.registry import resolved

        yield partial(resolved, router), fetched, rule
    else:
        with routed_by(router, params, rule) as (bundle, own):
            name = str(bundle) if router else "untrained"  # else it would be a temporary folder
            yield lambda: name, lambda _: nullcontext(bundle), own


def _tell(version: str, standing: "Standing", step: "Step | None") -> None:
    """Tell others where the promise of a registered router stands."""
    from flows.notify.events import promise_changed
    from flows.tracking.promises import log_standing

    if step:
        promise_changed(version, standing, step)
    log_standing(version, standing)


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
