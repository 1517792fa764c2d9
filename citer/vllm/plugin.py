"""The private names of vLLM's API and engine that routing touches, and the versions that have them.

Those of its worker are in `citer.vllm.worker`. vLLM calls `plug` in every process. In a server
without settings of citer, that leaves no more than one wrapper.
"""

import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import partial, wraps
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from citer.errors import InputError
from citer.vllm import KEY

if TYPE_CHECKING:
    from citer.rule import Rule
    from citer.vllm.swap import Live

KNOWN = ("0.32", "0.33")  # of 0.33 the names and signatures only: it was not run
SCHEDULER = "citer.vllm.scheduler.Routed{}Scheduler"
ORIGINAL = "citer_original"  # attribute of a wrapper
LOW = 2**30  # priority of shadow answers; vLLM reads it with --scheduling-policy priority


def plug() -> None:
    """Take up the settings of citer if vLLM gets some. Entry point `vllm.general_plugins`."""
    from vllm.engine.arg_utils import EngineArgs

    def create_engine_config(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        if KEY not in (self.additional_config or {}):
            return original(self, *args, **kwargs)
        try:
            check_version()
            self.speculative_config = _with_slm(self.speculative_config)
            config = original(self, *args, **kwargs)
            _route(config)
        except InputError as error:
            sys.exit(f"citer: {error}")
        except ValidationError as error:  # for example, two models of different vocabularies
            sys.exit(f"vllm: {error.errors()[0]['msg']}")
        return config

    _wrap(EngineArgs, create_engine_config)


def check_version() -> None:
    """Raise InputError if this vLLM is none of those that are known to work."""
    found = version("vllm")
    if not found.startswith(tuple(f"{known}." for known in KNOWN)):
        expected = f"expected {' or '.join(f'{known}.*' for known in KNOWN)}"
        raise InputError(f"vllm {found}: routing uses private names of vLLM, {expected}")


def _with_slm(speculation: dict[str, Any] | None) -> dict[str, Any] | None:
    """Let a registered router's SLM be the draft model. Raises InputError."""
    if not speculation or not str(speculation.get("model")).startswith("models:/"):
        return speculation
    from citer.vllm.loading import pinned

    return speculation | {"model": str(pinned(speculation["model"])[1] / "slm")}


def _route(config: Any) -> None:
    """Prepare the engine's configuration and this process's API. Raises InputError."""
    from citer.vllm.loading import engine_of, prepare, read_settings
    from citer.vllm.swap import Live, Version

    settings, engine = read_settings(config.additional_config), engine_of(config)
    _refuse_unserved(config)
    version = Version.read(*prepare(config, settings), engine)
    config.additional_config = config.additional_config | {KEY: asdict(version.served)}
    scheduler, parallel = config.scheduler_config, config.parallel_config
    scheduler.scheduler_cls = SCHEDULER.format("Async" if scheduler.async_scheduling else "")
    parallel.worker_extension_cls = "citer.vllm.worker.Extension"
    if config.observability_config.per_request_spec_decode_metrics == "none":
        config.observability_config.per_request_spec_decode_metrics = "summary"
    alone = parallel.data_parallel_size * parallel._api_process_count == 1
    alias = settings.router or ""
    follows = alone and alias.startswith("models:/") and "@" in alias and not settings.rule
    live = Live(version, alias if follows else "")
    _serve_rules(live)
    _watch_requests(live)
    _serve_totals(live, first=parallel._api_process_rank <= 0)  # the first or only API server


def _refuse_unserved(config: Any) -> None:
    from vllm import envs

    parallel, drafts = config.parallel_config, config.speculative_config
    used = {
        "--pipeline-parallel-size": parallel.pipeline_parallel_size > 1,
        "--enable-expert-parallel": parallel.enable_expert_parallel,
        "--enable-batch-sharded-sampling": parallel.enable_batch_sharded_sampling,
        "--scheduler-cls": config.scheduler_config.scheduler_cls,
        "--worker-extension-cls": parallel.worker_extension_cls,
        "the model runner V1 (VLLM_USE_V2_MODEL_RUNNER)": not config.use_v2_model_runner,
        "--logprobs-mode": config.model_config.logprobs_mode.startswith("processed"),
        "VLLM_USE_RUST_FRONTEND": envs.VLLM_USE_RUST_FRONTEND,
        # Drafts are then not judged as rules say. vLLM refuses a watermark unless they are sampled.
        "speculative_config.rejection_sample_method": drafts.rejection_sample_method != "standard",
        "speculative_config.draft_sample_method": drafts.draft_sample_method != "greedy",
        "speculative_config.use_local_argmax_reduction": drafts.use_local_argmax_reduction,
    }
    for option in filter(used.get, used):
        raise InputError(f"{option}: routing does not serve it, expected none")


def _serve_rules(live: "Live") -> None:
    """Let requests of the API name a rule, and end answers as the router's certificate does."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
    from vllm.entrypoints.openai.completion.protocol import CompletionRequest
    from vllm.entrypoints.openai.responses.protocol import ResponsesRequest
    from vllm.exceptions import VLLMValidationError

    from citer.vllm.chats import Asked

    def to_sampling_params(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        now = live.now
        params = original(self.model_copy(update=now.served.ends(self)), *args, **kwargs)
        content = (self.model_extra or {}).get(KEY)
        try:
            named = None if content is None else now.served.asked(content)
        except InputError as error:
            raise VLLMValidationError(f"{KEY}: {error}", parameter=KEY) from None
        # Before the rule in force is read: another thread may step back from it.
        chat = now.log.chat(self, params, named=bool(named)) if now.log else None
        asked = Asked(rule=str(named or now.rule), router=now.served.router)
        asked.chat = chat
        params.extra_args = {**(params.extra_args or {}), KEY: asked}
        return params

    for request in (ChatCompletionRequest, CompletionRequest, ResponsesRequest):
        _wrap(request, to_sampling_params)


def _watch_requests(live: "Live") -> None:
    """Let requests of other routes have the server's rule. Log chats, and shadow them."""
    from vllm.v1.engine.async_llm import AsyncLLM

    from citer.vllm.chats import Asked, whole

    def generate(
        original: Any, self: Any, prompt: Any, sampling_params: Any, request_id: str, **kwargs: Any
    ) -> Any:
        params, now = sampling_params, live.now
        given = params.extra_args or {}
        if not isinstance(asked := given.get(KEY), Asked):
            asked = Asked(rule=str(now.rule), router=now.served.router)
            params.extra_args = given | {KEY: asked}
        outputs = original(self, prompt, params, request_id, **kwargs)
        if not now.log or not asked.chat or params.n != 1:
            return outputs

        async def again(rule: "Rule") -> str | None:
            own, low = params.clone(), kwargs | {"priority": LOW}
            own.extra_args = given | {KEY: {"rule": str(rule), "router": asked["router"]}}
            return await whole(original(self, prompt, own, f"{request_id}-shadow", **low))

        take = partial(self.collective_rpc, "citer_audited", args=(request_id,))  # of all ranks
        return now.log.watched(outputs, asked, request_id, take, again)

    _wrap(AsyncLLM, generate)


def _serve_totals(live: "Live", *, first: bool) -> None:
    """Whenever vLLM logs statistics, look for a newer version and for other servers' evidence.

    The `first` server counts.
    """
    from vllm.v1.engine.async_llm import AsyncLLM

    from citer.vllm.counts import TOTALS

    async def do_log_stats(original: Any, self: Any) -> None:
        await original(self)
        live.look(self)
        found = await live.now.log.refreshed() if live.now.log else {}
        if first:
            [total, *_] = await self.collective_rpc("citer_total")  # of each rank
            for name, number in (total | found).items():
                TOTALS.labels(name).set(number)

    _wrap(AsyncLLM, do_log_stats)


def _wrap(owner: Any, wrapper: Callable[..., Any]) -> None:
    """Replace a method by `wrapper`, which gets the original as its first argument."""
    name = wrapper.__name__
    original = getattr(owner, name)
    original = getattr(original, ORIGINAL, original)  # a second engine in this process

    @wraps(original)
    def method(*args: Any, **kwargs: Any) -> Any:
        return wrapper(original, *args, **kwargs)

    setattr(method, ORIGINAL, original)
    setattr(owner, name, method)
