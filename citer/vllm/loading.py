"""The plugin's settings, `citer` in vLLM's `--additional-config`, and what they name.

--additional-config '{"citer": {"router": "models:/citer-router@champion"}}'
--additional-config '{"citer": {"rule": "audit 0.25"}}'

In the process that the user has started, all is checked before vLLM starts an engine (`prepare`).
"""

import json
import os
import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Self

from pydantic import ValidationError, model_validator

from citer.config.params import ShadowParams
from citer.decoding.policy import head_name
from citer.errors import InputError
from citer.models.bundle import Card, check_identity, read_bundle, read_card
from citer.models.folder import PairFolder
from citer.rule import LLM, Rule
from citer.sections import LocalPath, complaint
from citer.serving.deployment import stored_rule
from citer.serving.promise import is_own, stored_promise
from citer.serving.untrained import certain
from citer.vllm import KEY
from citer.vllm.registry import fetched

PINNED = "CITER_VLLM_ROUTERS"  # environment of the API servers that this process starts
SPECULATION = '{"method": "draft_model", "model": SLM, "num_speculative_tokens": 16}'
PENALTIES = {"repetition_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0}  # neutral
NEEDED = {"log": "router", "redact": "log", "shadow": "evidence", "evidence": "router"}
AUDIT = re.compile(r"^\s*audit\b")  # a rule without a visit: all drafts that vLLM asks for


class Settings(ShadowParams):
    """What the plugin does for requests that name no rule."""

    router: LocalPath | None = None  # a folder, `models:/NAME@ALIAS` or `models:/NAME/VERSION`
    rule: str | None = None  # default: the router's registered rule; with evidence, that in force
    log: LocalPath | None = None  # a folder for answers to chats, as `prepare.traffic` reads them
    redact: str | None = None  # `MODULE:FUNCTION` that changes or leaves out their rows
    evidence: LocalPath | None = None  # a file, or an address of Postgres

    @model_validator(mode="after")
    def fits(self) -> Self:
        if not (self.router or self.rule):
            raise ValueError("expected router or rule")
        for key, needed in NEEDED.items():
            if getattr(self, key) and not getattr(self, needed):
                raise ValueError(f"{key}: expected {needed}, too")
        if self.evidence and self.rule:
            raise ValueError("evidence: expected no rule, since it is about the router's")
        return self


@dataclass(frozen=True, eq=False)  # its identity is its hash: lists have none
class Served:
    """What requests may ask of a server. Its other processes get the fields in their settings."""

    default: str  # the rule of those that name none
    heads: Collection[str] | None  # the router's; None: not known here, any may be named
    drafts: int  # the most before a visit
    scored: bool  # whether a small model drafts, so that a rule can ask for scores
    router: str | None = None  # the folder of the heads, if they are known
    logged: bool = False  # whether audits are kept for the log
    stop: tuple[str, ...] = ()  # texts and ids that end the answers of the router's certificate
    eos_ids: tuple[int, ...] = ()

    def ends(self, request: Any) -> dict[str, Any]:
        """Return the fields that end the answer to a request of the API: its own, and these."""
        own = [request.stop] if isinstance(request.stop, str) else request.stop or ()
        ids = [*(request.stop_token_ids or ()), *(() if request.ignore_eos else self.eos_ids)]
        return {"stop": [*own, *self.stop], "stop_token_ids": ids}

    def asked(self, content: Any) -> Rule:
        """Return the rule for the content, or None, of a field `citer`. Raises InputError."""
        if content is None:
            return self.parsed(self.default)
        if not isinstance(content, dict) or [*content] != ["rule"]:
            raise InputError(f'{content!r}: expected {{"rule": RULE}}')
        return self.parsed(str(content["rule"]))

    def of(self, params: Any) -> Rule:
        """Return the rule of a request by its SamplingParams.

        It is the LLM alone if the rule is not valid, or if it was asked of another router's heads.
        """
        asked = (params.extra_args or {}).get(KEY)
        try:
            other = asked and asked.get("router", self.router) != self.router
            if other and self.heads is not None:
                return LLM
            return self.parsed(str(asked["rule"]) if asked else self.default)
        except (AttributeError, InputError, KeyError, TypeError):
            return LLM

    @lru_cache(maxsize=1024)  # noqa: B019  a process has one server
    def parsed(self, text: str) -> Rule:
        """Parse a rule, `certain` without a router. `audit β` judges all drafts that vLLM asks for.

        Raises InputError for a rule that is not valid, that needs a scorer which is not there,
        another drafter, or more drafts.
        """
        try:
            rule = Rule.parse(AUDIT.sub(f"every {self.drafts} audit", text))
        except ValueError as error:
            raise InputError(f"rule: {error}") from None
        if rule.exact and rule.visit == "every" and rule.cap == rule.at:
            rule = replace(rule, cap=0)  # vLLM's own way; the text is the same for fewer drafts
        if rule.draft != "slm":
            raise InputError(f"rule `{rule}`: expected no `from`, since vLLM has its own `ngram`")
        if rule.cap > self.drafts:
            most = f"expected at most num_speculative_tokens, {self.drafts}"
            raise InputError(f"rule `{rule}`: cap {rule.cap}, {most}")
        if not self.scored and (rule.by or (rule.asks_slm and rule.visit != "every")):
            expected = "expected `audit β` or `score 1`, since no small model drafts here"
            raise InputError(f"rule `{rule}`: {expected}")
        if self.heads is None:
            return rule
        rule = rule if self.heads else certain(rule)
        head_name(self.heads, rule)
        return rule


class Engine(NamedTuple):
    """What vLLM serves."""

    llm: str
    dtype: str
    method: str  # how vLLM drafts
    slm: str | None  # the folder of its `draft_model`
    drafts: int  # num_speculative_tokens


def engine_of(config: Any) -> Engine:
    """Read a VllmConfig. Raises InputError if nothing drafts."""
    model, drafter = config.model_config, config.speculative_config
    if not drafter:
        expected = f"expected such as --speculative-config '{SPECULATION}'"
        raise InputError(f"--additional-config has {KEY}, but nothing drafts: {expected}")
    dtype, method = str(model.dtype).removeprefix("torch."), str(drafter.method)
    slm = drafter.model if method == "draft_model" else None
    return Engine(model.model, dtype, method, slm, drafter.num_speculative_tokens)


def read_settings(additional_config: dict[str, Any]) -> Settings:
    """Read the section `citer` of `--additional-config`. Raises InputError."""
    try:
        return Settings.model_validate(additional_config[KEY])
    except ValidationError as error:
        raise InputError(f"--additional-config: {KEY}: {complaint(error)}") from None


def read_served(settings: Settings, engine: Engine) -> Served:
    """Read the rule of requests that name none, and the router. Raises InputError.

    A router is checked against the models before a weight is loaded: it must be for this LLM, SLM,
    tokenizer, prompt format and precision.
    """
    served = Served(settings.rule or "", (), engine.drafts, scored=engine.slm is not None)
    if not settings.router:
        served.parsed(served.default)
        return served
    folder = Path(settings.router)
    (router, _), card = read_bundle(folder), read_card(folder)
    rule = settings.rule or _registered(folder, card)
    served = replace(served, default=rule, heads=tuple(router.heads), router=settings.router)
    served = replace(served, stop=card.prompts.stop, logged=bool(settings.log))
    promise = stored_promise(folder) if settings.evidence else None
    if promise and promise.sampling != "greedy":
        expected = "expected one of greedy answers, since samples differ by chance"
        raise InputError(f"evidence: a promise of answers by {promise.sampling}, {expected}")
    for each in (rule, *(promise.path if promise else ())):
        served.parsed(each)
    return replace(served, eos_ids=_checked_pair(folder, card, engine).eos_ids)


def _registered(folder: Path, card: Card) -> str:
    """Return the rule of a router's version. Raises InputError if its certificate is of others."""
    rule = stored_rule(folder)
    expected = "expected one of `serve: {engine: vllm}`, or a `rule` in the settings of citer"
    if not is_own(rule) and card.serve.engine != "vllm":
        raise InputError(f"{folder}: `{rule}` was certified for another server, {expected}")
    if not is_own(rule) and card.sampling != "greedy":
        raise InputError(f"{folder}: `{rule}` was certified by {card.sampling}, {expected}")
    return str(rule)


def _checked_pair(router: Path, card: Card, engine: Engine) -> PairFolder:
    if engine.slm is None:
        expected = f"expected --speculative-config '{SPECULATION}'"
        raise InputError(f"{router}: scores an SLM, but {engine.method} drafts; {expected}")
    if card.dtype != engine.dtype:  # before the digests, which may take minutes
        made = f"{router} was made for {card.dtype}"
        raise InputError(f"--dtype {engine.dtype}: {made}, expected --dtype {card.dtype}")
    if card.slm.digest.endswith("-int8"):
        expected = "expected one for its stored weights"
        raise InputError(f"{router}: made for an SLM with pair.slm_weights: int8, {expected}")
    pair = PairFolder(Path(engine.slm), Path(engine.llm), card.prompts)
    check_identity(card.model_dump(), pair.identity(engine.dtype), router)
    return pair


def _check_llm(config: Any) -> None:
    """Raise InputError if vLLM does not serve the model in a folder as it is."""
    model, expected = config.model_config, "expected none, since the router is for the LLM alone"
    if not Path(model.model).is_dir():
        expected = "expected a folder, whose digest can be compared with the router's"
        raise InputError(f"model {model.model}: {expected}")
    if model.tokenizer != model.model:
        raise InputError(f"--tokenizer {model.tokenizer}: expected the LLM's own, {model.model}")
    if model.quantization and not getattr(model.hf_config, "quantization_config", None):
        raise InputError(f"--quantization {model.quantization}: {expected}")
    if config.lora_config:
        raise InputError(f"--enable-lora: {expected}")
    for name, value in model.get_diff_sampling_param().items():
        if value != PENALTIES.get(name, value):
            expected = "expected --generation-config vllm, since the router's answers have none"
            raise InputError(f"generation_config.json: {name} {value}: {expected}")


def prepare(config: Any, settings: Settings) -> tuple[str, Settings]:
    """Return the router's name, and the settings with its folder.

    Raises InputError if it cannot serve the model of a VllmConfig.
    """
    if settings.log and config.parallel_config.data_parallel_size > 1:
        raise InputError("log: expected one engine, since vLLM asks only the first for audits")
    if not settings.router:
        return "", settings
    name, router = pinned(settings.router)
    _check_llm(config)
    return name, settings.model_copy(update={"router": str(router.absolute())})


def pinned(uri: str) -> tuple[str, Path]:
    """Return a router's name and folder: the same ones in all processes that this one starts.

    An alias may move between the starts of two API servers. Raises InputError.
    """
    if not uri.startswith("models:/"):
        return uri, Path(uri)
    known: dict[str, list[str]] = json.loads(os.environ.get(PINNED, "{}"))
    known[uri] = known.get(uri) or [*map(str, fetched(uri))]
    os.environ[PINNED] = json.dumps(known)
    name, folder = known[uri]
    return name, Path(folder)
