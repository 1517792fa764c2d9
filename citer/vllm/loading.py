"""The plugin's settings, `citer` in vLLM's `--additional-config`, and what they name.

--additional-config '{"citer": {"router": "models:/citer-router@champion"}}'
extra_body={"citer": {"rule": "risk 0.8 audit 0.1"}}

The router and its SLM are checked against the LLM that vLLM serves: in the process that the user
has started, before vLLM starts an engine (`prepare`), and where they are loaded.
"""

import json
import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

from pydantic import ValidationError, model_validator

from citer.config.params import PairParams, RuleText
from citer.decoding.policy import head_name
from citer.errors import InputError
from citer.models.bundle import check_identity, folder_identity, read_bundle, read_card
from citer.models.folder import PairFolder
from citer.models.pair import Pair, load_model, make_pair
from citer.models.router import Router
from citer.models.size import ModelSize
from citer.progress import warn
from citer.rule import Rule
from citer.sections import LocalPath, Section, complaint
from citer.serving.deployment import served_pair, stored_rule
from citer.vllm import KEY, PROPOSER
from citer.vllm.registry import fetched

CHECKED = "CITER_VLLM_CHECKED"  # environment of the API servers that this process starts
SPECULATION = f'{{"method": "custom_class", "model": "{PROPOSER}", "num_speculative_tokens": 16}}'
AnySection = TypeVar("AnySection", bound=Section)


class Settings(Section):
    """Where the router is, and what it does for requests that name no rule.

    router: a folder, `models:/NAME@ALIAS` or `models:/NAME/VERSION`
    slm: the SLM's folder, if the router's folder has none; by default the one its card names
    rule: default: the router's registered rule
    log: a folder for the answers of chat requests, as `prepare.traffic` reads them
    redact: `MODULE:FUNCTION` that changes or leaves out their rows
    """

    router: LocalPath
    slm: LocalPath | None = None
    rule: RuleText | None = None
    log: LocalPath | None = None
    redact: str | None = None

    @model_validator(mode="after")
    def redacts_a_log(self) -> Self:
        if self.redact and not self.log:
            raise ValueError("redact: expected log, too")
        return self


class Asked(Section):
    """What one request asks for."""

    rule: RuleText


def parsed(section: type[AnySection], content: Any, place: str) -> AnySection:
    """Check a section. Raises InputError that begins with `place`."""
    try:
        return section.model_validate(content)
    except ValidationError as error:
        raise InputError(f"{place}: {complaint(error)}") from None


@dataclass(frozen=True)
class Served:
    """What requests may ask of a server, and its rule if they ask for none.

    heads: the router's
    drafts: the most before a visit
    """

    rule: Rule
    heads: Collection[str]
    drafts: int

    def asked(self, content: Any) -> Rule:
        """Return the rule of a request whose field `citer` has this content, or None.

        Raises InputError for an unknown key, a rule that is not valid, one whose head the router
        lacks, or one that needs another drafter or more drafts.
        """
        rule = self.rule if content is None else parsed(Asked, content, "citer").rule
        if rule.draft != "slm":
            raise InputError(f"rule `{rule}`: expected no `from`, since vLLM has its own `ngram`")
        if rule.cap > self.drafts:
            most = f"expected at most num_speculative_tokens, {self.drafts}"
            raise InputError(f"rule `{rule}`: cap {rule.cap}, {most}")
        if rule.asks_slm:
            head_name(self.heads, rule)
        return rule


class Engine(NamedTuple):
    """What vLLM serves.

    changes: settings by which it is not the model in the folder `llm`
    drafts: num_speculative_tokens
    """

    llm: str
    tokenizer: str
    dtype: str
    device: str
    changes: tuple[str, ...]
    drafts: int


def engine_of(config: Any) -> Engine:
    """Read a VllmConfig."""
    model, changes = config.model_config, []
    if model.quantization and not getattr(model.hf_config, "quantization_config", None):
        changes.append(f"--quantization {model.quantization}")
    if config.lora_config:
        changes.append("--enable-lora")
    dtype = str(model.dtype).removeprefix("torch.")
    device = config.device_config.device_type
    drafts = config.speculative_config.num_speculative_tokens if config.speculative_config else 0
    return Engine(model.model, model.tokenizer, dtype, device, tuple(changes), drafts)


def read_settings(additional_config: dict[str, Any]) -> Settings:
    """Read the section `citer` of `--additional-config`. Raises InputError."""
    if KEY not in additional_config:
        expected = 'expected --additional-config \'{"citer": {"router": FOLDER}}\''
        raise InputError(f"no settings of citer, {expected}")
    return parsed(Settings, additional_config[KEY], f"--additional-config: {KEY}")


def read_served(settings: Settings, drafts: int) -> Served:
    """Read the router, and the rule of requests that have none. Raises InputError."""
    folder = Path(settings.router)
    router, _ = read_bundle(folder)
    served = Served(settings.rule or stored_rule(folder), tuple(router.heads), drafts)
    served.asked(None)
    return served


def check_pair(settings: Settings, engine: Engine) -> PairFolder:
    """Return the SLM and the LLM, before a weight is loaded.

    Raises InputError if the router was made for another LLM, SLM, tokenizer, prompt format or
    precision.
    """
    _check_engine(engine)
    folder = Path(settings.router)
    card = read_card(folder)
    if card["dtype"] != engine.dtype:  # before the digests, which may take minutes
        made = f"{folder} was made for {card['dtype']}"
        raise InputError(f"--dtype {engine.dtype}: {made}, expected --dtype {card['dtype']}")
    if card["slm"]["digest"].endswith("-int8"):
        expected = "expected one for its stored weights"
        raise InputError(f"{folder}: made for an SLM with pair.slm_weights: int8, {expected}")
    slm = Path(settings.slm or card["slm"]["id"])
    folders = served_pair(folder, slm, Path(engine.llm))
    check_identity(card, folder_identity(folders, engine.dtype), folder)
    return folders


def load(settings: Settings, engine: Engine) -> tuple[Pair, Router]:
    """Load the SLM and the router; of the LLM, only its card. Raises InputError."""
    folders, (router, _) = check_pair(settings, engine), read_bundle(Path(settings.router))
    llm = folders.llm.path
    params = PairParams.model_validate(
        {"slm": str(folders.slm), "llm": str(llm), "device": engine.device, "dtype": engine.dtype}
    )
    slm = load_model("slm", folders.slm, params)
    pair = make_pair(folders, slm, ModelSize.of(llm, engine.dtype).model)
    return pair, router.to(slm.device)


def _check_engine(engine: Engine) -> None:
    if not Path(engine.llm).is_dir():
        expected = "expected a folder, whose digest can be compared with the router's"
        raise InputError(f"model {engine.llm}: {expected}")
    if engine.tokenizer != engine.llm:
        raise InputError(f"--tokenizer {engine.tokenizer}: expected the LLM's own, {engine.llm}")
    if engine.changes:
        expected = "expected none, because the router was trained on the LLM's own weights"
        raise InputError(f"{', '.join(engine.changes)}: {expected}")


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
    router = known or settings.router
    if router.startswith("models:/"):
        router = str(fetched(router))
    folders = {"router": router, "slm": settings.slm, "log": settings.log}
    absolute = {name: str(Path(path).absolute()) for name, path in folders.items() if path}
    local = settings.model_copy(update=absolute)
    served = read_served(local, engine.drafts)
    if not settings.rule and not served.rule.exact and not served.rule.cap:
        warn(f"rule `{served.rule}`: it has no cap, so its promise does not hold inside vLLM")
    if not known:
        check_pair(local, engine)
    os.environ[CHECKED] = json.dumps({settings.router: local.router})
    return served, local.model_copy(update={"rule": served.rule})
