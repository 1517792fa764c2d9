"""What is checked before vLLM starts an engine, in the process that was started by the user."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from citer.errors import InputError
from citer.models.bundle import check_identity, folder_identity, read_card
from citer.rule import Rule
from citer.serving import served_pair, stored_rule
from citer.vllm.registry import fetched
from citer.vllm.settings import Served, Settings, parsed

KEY = "citer"  # of vLLM's additional config, and of a request's additional arguments
CHECKED = "CITER_VLLM_CHECKED"  # environment of API servers that this process starts
PLACE = "--additional-config: citer"


@dataclass(frozen=True)
class Engine:
    """What vLLM is about to serve, and what of it routing depends on."""

    llm: str
    dtype: str
    method: str | None  # of speculation
    unserved: tuple[str, ...]  # options in use that routing does not serve


def prepared(content: Any, engine: Engine) -> tuple[Served, dict[str, str]]:
    """Check the settings against the engine.

    Returns what requests may ask for, and the settings for the engine's processes: `router` and
    `slm` are folders, `rule` is the rule of requests that ask for none. An API server started by
    this process gets the same router, although an alias may have moved. Raises InputError.
    """
    settings = parsed(Settings, content, PLACE)
    _check_engine(engine)
    known = json.loads(os.environ.get(CHECKED, "{}"))
    resolved = known.get(settings.router) or _resolved(settings, engine)
    os.environ[CHECKED] = json.dumps({settings.router: resolved})
    heads = tuple(read_card(Path(resolved["router"]))["heads"])
    return Served(Rule.parse(resolved["rule"]), heads), resolved


def _check_engine(engine: Engine) -> None:
    if engine.method != "custom_class":
        expected = 'expected --speculative-config \'{"method": "custom_class", …}\''
        raise InputError(f"{PLACE}: speculation by {engine.method}, {expected}")
    for option in engine.unserved:
        raise InputError(f"{PLACE}: routing does not serve {option}")
    if not Path(engine.llm).is_dir():
        raise InputError(f"{engine.llm}: no such folder; routing needs the LLM as a local folder")


def _resolved(settings: Settings, engine: Engine) -> dict[str, str]:
    registered = settings.router.startswith("models:/")
    bundle = (fetched(settings.router) if registered else Path(settings.router)).absolute()
    card, rule = read_card(bundle), settings.rule or stored_rule(bundle)
    Served(rule, tuple(card["heads"])).asked(None)
    if not settings.slm and not (bundle / "slm").is_dir():
        raise InputError(f"{PLACE}.slm: missing; {bundle} has no SLM of its own")
    folders = served_pair(bundle, Path(settings.slm or ""), Path(engine.llm))
    check_identity(card, folder_identity(folders, engine.dtype), bundle)
    return {"router": str(bundle), "slm": str(folders.slm.path.absolute()), "rule": str(rule)}
