"""What is checked before vLLM starts an engine, in the process that the user has started."""

import json
import os
from pathlib import Path
from typing import Any

from citer.errors import InputError
from citer.vllm import KEY
from citer.vllm.loading import Engine, check_pair, read_served, read_settings
from citer.vllm.registry import fetched
from citer.vllm.settings import Served, Settings

CHECKED = "CITER_VLLM_CHECKED"  # environment of the API servers that this process starts
SPECULATION = (
    '{"method": "custom_class", "model": "citer.vllm.RoutedProposer", "num_speculative_tokens": 16}'
)


def prepare(
    additional_config: dict[str, Any], engine: Engine, drafted_by: str | None
) -> tuple[Served, dict[str, str]]:
    """Check the settings against the engine.

    Returns what requests may ask for, and the settings for the engine's processes: `router` is a
    folder, `rule` is the rule of requests that ask for none. Further API servers, which this
    process starts, get the same router, although its alias may have moved. Raises InputError.
    """
    settings = read_settings(additional_config)
    if drafted_by != "citer.vllm.RoutedProposer":
        found = f"--additional-config has {KEY}, but drafts come from {drafted_by}"
        raise InputError(f"{found}: expected --speculative-config '{SPECULATION}'")
    checked: dict[str, str] = json.loads(os.environ.get(CHECKED, "{}"))
    known = checked.get(settings.router)
    local = settings.model_copy(update={"router": known or _folder(settings)})
    served = read_served(local)
    if not known:
        check_pair(local, engine)
    os.environ[CHECKED] = json.dumps({settings.router: local.router})
    return served, _engine_settings(local, served)


def _folder(settings: Settings) -> str:
    registered = settings.router.startswith("models:/")
    return str(fetched(settings.router) if registered else Path(settings.router).absolute())


def _engine_settings(local: Settings, served: Served) -> dict[str, str]:
    slm = {"slm": str(Path(local.slm).absolute())} if local.slm else {}
    return {"router": local.router, **slm, "rule": str(served.rule)}
