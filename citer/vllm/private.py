"""The private names of vLLM's API and engine that routing touches, and the versions that have them.

Those of its worker, which take seconds to import, are in `citer.vllm.runner`. vLLM calls `plug` in
every process. In a server without settings of citer, that leaves no more than one wrapper.
"""

import sys
from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from functools import partial, wraps
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from citer.errors import InputError
from citer.vllm import KEY, PROPOSER

if TYPE_CHECKING:
    from citer.vllm.loading import Served
    from citer.vllm.log import ChatLog
    from citer.vllm.usage import Usage

KNOWN = ("0.32",)
SCHEDULER = "citer.vllm.scheduler.CountingScheduler"
WORKER = "citer.vllm.counts.CountingWorker"
ORIGINAL = "citer_original"  # attribute of a wrapper
REPLIED: ContextVar["Usage | None"] = ContextVar("replied", default=None)  # counts of this reply


def plug() -> None:
    """Take up the settings of citer if vLLM gets some, or our proposer.

    Entry point `vllm.general_plugins`.
    """
    from vllm.engine.arg_utils import EngineArgs

    def create_engine_config(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        config = original(self, *args, **kwargs)
        if KEY in (config.additional_config or {}) or _drafter(config) == PROPOSER:
            _route(config)
        return config

    _wrap(EngineArgs, create_engine_config)


def check_version() -> None:
    """Raise InputError if this vLLM is none of those that are known to work."""
    found = version("vllm")
    if not found.startswith(tuple(f"{known}." for known in KNOWN)):
        expected = f"expected {' or '.join(f'{known}.*' for known in KNOWN)}"
        raise InputError(f"vllm {found}: routing uses private names of vLLM, {expected}")


def _route(config: Any) -> None:
    """Prepare the engine's configuration and this process's API. Ends the process on bad input."""
    try:
        check_version()
        _refuse_unserved(config)
        served, log = _prepare(config)
    except InputError as error:
        sys.exit(f"citer: {error}")
    config.scheduler_config.scheduler_cls = SCHEDULER
    config.parallel_config.worker_extension_cls = WORKER
    hide = config.observability_config.per_request_spec_decode_metrics == "none"
    config.observability_config.per_request_spec_decode_metrics = "detailed"
    _serve_rules(served, logged=bool(log))
    _refuse_beam_search()
    _serve_usage()
    _serve_counts(log, hide=hide)
    if config.parallel_config._api_process_rank <= 0:  # the first or only API server
        _serve_audits()


def _drafter(config: Any) -> str | None:
    return config.speculative_config and config.speculative_config.model


def _prepare(config: Any) -> "tuple[Served, ChatLog | None]":
    """Check the settings, and give the engine those with absolute folders. Raises InputError."""
    from citer.vllm.loading import engine_of, prepare
    from citer.vllm.log import open_log

    engine = engine_of(config)
    served, settings = prepare(config.additional_config, engine, _drafter(config))
    config.additional_config[KEY] = settings.model_dump(mode="json", exclude_none=True)
    return served, open_log(settings, Path(engine.llm))


def _refuse_unserved(config: Any) -> None:
    used = {
        "--pipeline-parallel-size": config.parallel_config.pipeline_parallel_size > 1,
        "--scheduler-cls": config.scheduler_config.scheduler_cls,
        "--worker-extension-cls": config.parallel_config.worker_extension_cls,
    }
    for option in filter(used.get, used):
        raise InputError(f"{option}: routing does not serve it, expected none")


def _serve_rules(served: "Served", *, logged: bool) -> None:
    """Let requests of the API name a rule. Chat requests that are `logged` keep their messages."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.entrypoints.openai.completion.protocol import CompletionRequest
    from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
    from vllm.exceptions import VLLMValidationError

    from citer.vllm.log import texts

    def to_sampling_params(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        params = original(self, *args, **kwargs)
        try:
            rule = served.asked((self.model_extra or {}).get(KEY))
        except InputError as error:
            raise VLLMValidationError(str(error), parameter=KEY) from None
        messages = {"messages": texts(getattr(self, "messages", ()))} if logged else {}
        params.extra_args = {**(params.extra_args or {}), KEY: {"rule": str(rule), **messages}}
        return params

    for request in (ChatCompletionRequest, CompletionRequest, ResponsesRequest):
        _wrap(request, to_sampling_params)


def _refuse_beam_search() -> None:
    """Refuse requests for a beam search that name a rule."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.entrypoints.openai.completion.protocol import CompletionRequest
    from vllm.exceptions import VLLMValidationError

    def to_beam_search_params(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        if KEY in (self.model_extra or {}):
            raise VLLMValidationError("citer: beam search is not routed", parameter=KEY)
        return original(self, *args, **kwargs)

    for request in (ChatCompletionRequest, CompletionRequest):
        _wrap(request, to_beam_search_params)


def _serve_usage() -> None:
    """Let replies of the API say what they cost."""
    from vllm.entrypoints.openai.chat_completion.serving import OpenAIServingChat
    from vllm.entrypoints.openai.completion.serving import OpenAIServingCompletion

    from citer.vllm.usage import Usage, with_usage

    async def create(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        usage = Usage()
        REPLIED.set(usage)
        reply = await original(self, *args, **kwargs)
        if isinstance(reply, AsyncIterator):
            return (with_usage(event, usage) async for event in reply)
        if hasattr(reply, "usage"):  # no error
            reply.usage.citer = usage.fields
        return reply

    _wrap(OpenAIServingChat, create, "create_chat_completion")
    _wrap(OpenAIServingCompletion, create, "create_completion")


def _serve_counts(log: "ChatLog | None", *, hide: bool) -> None:
    """Count every request, and log the chats.

    `hide` vLLM's own counts in replies, which the user has not asked for.
    """
    from vllm.v1.engine.async_llm import AsyncLLM

    from citer.vllm.usage import Usage, counted

    def generate(
        original: Any, self: Any, prompt: Any, params: Any, request_id: str, **kwargs: Any
    ) -> Any:
        outputs = original(self, prompt, params, request_id, **kwargs)
        asked = (params.extra_args or {}).get(KEY, {})
        if log and asked.get("messages") and params.n == 1:
            take = partial(self.collective_rpc, "take_visits", args=(request_id,))  # of all ranks
            outputs = log.watched(outputs, asked, take)
        return counted(outputs, REPLIED.get() or Usage(), hide=hide)

    _wrap(AsyncLLM, generate)


def _serve_audits() -> None:
    """Let `/metrics` say what audits have found, whenever vLLM logs its own statistics."""
    from vllm.v1.engine.async_llm import AsyncLLM

    from citer.vllm.usage import count_audits

    before: dict[str, int] = {}

    async def do_log_stats(original: Any, self: Any) -> None:
        await original(self)
        [totals, *_] = await self.collective_rpc("audits")  # of each rank
        count_audits(totals, before)

    _wrap(AsyncLLM, do_log_stats)


def _wrap(owner: Any, wrapper: Callable[..., Any], name: str = "") -> None:
    """Replace a method by `wrapper`, which gets the original as its first argument."""
    name = name or wrapper.__name__
    original = getattr(owner, name)
    original = getattr(original, ORIGINAL, original)  # a second engine in this process

    @wraps(original)
    def method(*args: Any, **kwargs: Any) -> Any:
        return wrapper(original, *args, **kwargs)

    setattr(method, ORIGINAL, original)
    setattr(owner, name, method)
