"""`citer serve`: answer OpenAI's API with a router."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from citer.commands.answers import RouterOption, RuleOption, parse_rule, router_folder
from citer.commands.extra import need_pipeline, need_serve
from citer.config import load_params
from citer.io import digest


def serve(
    router: RouterOption,
    rule: RuleOption = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on. 0.0.0.0: reachable from other machines.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free port.")] = 8000,
    queue: Annotated[
        int,
        typer.Option(
            min=0, help="How many requests may wait for a slot. Others are refused with status 429."
        ),
    ] = 256,
    poll: Annotated[
        float,
        typer.Option(
            min=0.1, help="Seconds between two looks at what models:/NAME@ALIAS stands for."
        ),
    ] = 30,
) -> None:
    """Answer OpenAI's API over HTTP: chat and text completions, also as streams.

    Needs params.yaml in the current folder, which has the LLM, the slots and the longest answer.
    With CITER_API_KEYS=KEY,… in the environment, a client must send one of the keys. SIGTERM ends
    the server after its running requests. A router of the registry needs the extra "pipeline", too.
    """
    need_serve("citer serve")
    params, parsed, source = load_params(), parse_rule(rule), _source(router)
    from citer.server.releases import Releases
    from citer.server.run import listen, serve
    from citer.server.service import Settings

    settings = Settings(params.register_.model_name, queue, poll, params.evaluate.sampling)
    with listen(host, port) as listener:
        serve(settings, Releases(source, params, parsed), listener)


@dataclass(frozen=True)
class Folder:
    """The router in a folder, as it is at the start."""

    path: Path
    version: str

    def latest(self) -> str:
        return self.version

    def bundle(self, version: str) -> AbstractContextManager[Path]:
        return nullcontext(self.path)


@dataclass(frozen=True)
class Registered:
    """A router of MLflow's registry. Its versions are NAME/NUMBER."""

    uri: str

    def latest(self) -> str:
        from flows.aliases import resolved

        return resolved(self.uri).removeprefix("models:/")

    def bundle(self, version: str) -> AbstractContextManager[Path]:
        from flows.registry import fetched_bundle

        return fetched_bundle(f"models:/{version}")


def _source(router: str) -> Folder | Registered:
    if router.startswith("models:/"):
        need_pipeline("citer serve --router models:/…")
        return Registered(router)
    folder = router_folder(router)
    return Folder(folder, f"{folder} {digest(*sorted(folder.glob('router.*')))[:12]}")
