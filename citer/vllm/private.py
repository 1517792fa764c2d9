"""Every name of vLLM that the frontend touches and that vLLM may change without notice."""

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from contextvars import ContextVar
from functools import wraps
from importlib.metadata import version
from typing import Any

from citer.errors import InputError
from citer.vllm.settings import Served
from citer.vllm.start import KEY, Engine, prepared

KNOWN = ("0.32",)  # versions of vLLM in which all these names work
SCHEDULER = "citer.vllm.scheduler.CountingScheduler"


def plug() -> None:
    """Take up the settings of citer, if vLLM gets some. Entry point `vllm.general_plugins`.

    A server without these settings runs unchanged.
    """
    from vllm.engine.arg_utils import EngineArgs

    def create_engine_config(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        config = original(self, *args, **kwargs)
        if KEY in (config.additional_config or {}):
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
        served, resolved = prepared(config.additional_config[KEY], _engine(config))
    except InputError as error:
        sys.exit(f"citer: {error}")
    config.additional_config[KEY] = resolved
    config.scheduler_config.scheduler_cls = SCHEDULER
    config.observability_config.per_request_spec_decode_metrics = "summary"
    _serve(served)


def _engine(config: Any) -> Engine:
    speculation, model = config.speculative_config, config.model_config
    unserved = {
        "--enable-lora": config.lora_config,
        "--enable-prompt-embeds": model.enable_prompt_embeds,
        "--pipeline-parallel-size": config.parallel_config.pipeline_parallel_size > 1,
        "--scheduler-cls": config.scheduler_config.scheduler_cls,
    }
    return Engine(
        llm=model.model,
        dtype=str(model.dtype).removeprefix("torch."),
        method=speculation and speculation.method,
        unserved=tuple(option for option, used in unserved.items() if used),
    )


def _serve(served: Served) -> None:
    """Let the API's requests name a rule, and its replies say what they cost."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.entrypoints.openai.chat_completion.serving import OpenAIServingChat
    from vllm.entrypoints.openai.completion.protocol import CompletionRequest
    from vllm.entrypoints.openai.completion.serving import OpenAIServingCompletion
    from vllm.exceptions import VLLMValidationError
    from vllm.v1.engine.async_llm import AsyncLLM

    from citer.vllm.usage import Usage, with_usage

    spent: ContextVar[Usage | None] = ContextVar("spent", default=None)

    def to_sampling_params(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        params = original(self, *args, **kwargs)
        try:
            rule = served.asked((self.model_extra or {}).get(KEY))
        except InputError as error:
            raise VLLMValidationError(str(error), parameter=KEY) from None
        params.extra_args = {**(params.extra_args or {}), KEY: {"rule": str(rule)}}
        return params

    async def create(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        usage = Usage()
        spent.set(usage)
        reply = await original(self, *args, **kwargs)
        if isinstance(reply, AsyncIterator):
            return (with_usage(event, usage) async for event in reply)
        if hasattr(reply, "usage"):
            reply.usage.citer = usage.fields
        return reply

    def generate(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        return counted(original(self, *args, **kwargs), spent.get())

    async def counted(outputs: Any, reply: Usage | None) -> Any:
        own = Usage()
        async with aclosing(outputs):
            async for output in outputs:
                for choice in output.outputs:
                    own.add(choice.token_ids, choice.spec_decode_metrics)
                if output.finished:
                    own.count()
                    if reply:
                        reply.include(own)
                yield output

    for request in (ChatCompletionRequest, CompletionRequest):
        _wrap(request, to_sampling_params)
    _wrap(OpenAIServingChat, create, "create_chat_completion")
    _wrap(OpenAIServingCompletion, create, "create_completion")
    _wrap(AsyncLLM, generate)


def _wrap(owner: Any, wrapper: Callable[..., Any], name: str = "") -> None:
    """Replace a method by `wrapper`, which gets the original as its first argument."""
    name = name or wrapper.__name__
    original = getattr(owner, name)

    @wraps(original)
    def method(*args: Any, **kwargs: Any) -> Any:
        return wrapper(original, *args, **kwargs)

    setattr(owner, name, method)
