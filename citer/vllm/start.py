"""What is checked before vLLM starts an engine, in the process that the user has started."""

import json
import os
from pathlib import Path
from typing import Any

from citer.errors import InputError
from citer.vllm import KEY, PROPOSER
from citer.vllm.loading import Engine, check_pair, read_served, read_settings
from citer.vllm.registry import fetched
from citer.vllm.settings import Served, Settings

CHECKED = "CITER_VLLM_CHECKED"  # environment of the API servers that this process starts
SPECULATION = f'{{"method": "custom_class", "model": "{PROPOSER}", "num_speculative_tokens": 16}}'


def prepare(
    additional_config: dict[str, Any], engine: Engine, drafted_by: str | None
) -> tuple[Served, Settings]:
    """Check the settings against the engine.

    Returns what requests may ask for, and the settings with absolute folders and the rule of
    requests that name none. Further API servers, which this process starts, get the same router,
    although its alias may have moved. Raises InputError.
    """
    settings = read_settings(additional_config)
    if drafted_by != PROPOSER:
        found = f"--additional-config has {KEY}, but drafts come from {drafted_by}"
        raise InputError(f"{found}: expected --speculative-config '{SPECULATION}'")
    checked: dict[str, str] = json.loads(os.environ.get(CHECKED, "{}"))
    known = checked.get(settings.router)
    local = _with_folders(settings, known or _folder(settings.router))
    served = read_served(local)
    if not known:
        check_pair(local, engine)
    os.environ[CHECKED] = json.dumps({settings.router: local.router})
    return served, local.model_copy(update={"rule": served.rule})


def _folder(router: str) -> str:
    return str(fetched(router)) if router.startswith("models:/") else router


def _with_folders(settings: Settings, router: str) -> Settings:
    folders = {"router": router, "slm": settings.slm, "log": settings.log}
    absolute = {name: str(Path(path).absolute()) for name, path in folders.items() if path}
    return settings.model_copy(update=absolute)
