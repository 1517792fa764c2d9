"""vLLM's schedulers, which give each request no more places for drafts than its rule can use."""

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from citer.vllm.loading import engine_of, read_served, read_settings
from citer.vllm.rules import most_pending


class _Limited(Scheduler if TYPE_CHECKING else object):  # type: ignore[misc]
    """Shortens the places for drafts, in which vLLM would let the LLM read tokens for nothing."""

    def __init__(self, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(vllm_config, *args, **kwargs)
        settings = read_settings(vllm_config.additional_config)
        served, _ = read_served(settings, engine_of(vllm_config))
        # A later version may have others. Then some requests have places for nothing.
        self._served = replace(served, heads=None)

    def add_request(self, request: Any) -> None:
        """Add a request. One that the SLM does not read shares no cached prefix with others."""
        if not most_pending(self._served.of(request.sampling_params)):
            request.cache_salt = f"{request.cache_salt or ''} unread"
            request.block_hashes = []
            request.update_block_hashes()
        super().add_request(request)

    def _shorten(self, keys: Iterable[str]) -> None:
        for key in keys:
            if request := self.requests.get(key):
                most = most_pending(self._served.of(request.sampling_params))
                if len(request.spec_token_ids) > most:
                    request.spec_token_ids = request.spec_token_ids[:most]


class RoutedScheduler(_Limited, Scheduler):
    def update_draft_token_ids(self, draft_token_ids: Any) -> None:
        super().update_draft_token_ids(draft_token_ids)
        self._shorten(draft_token_ids.req_ids)


class RoutedAsyncScheduler(_Limited, AsyncScheduler):
    def _update_after_schedule(self, scheduler_output: Any) -> None:
        super()._update_after_schedule(scheduler_output)
        self._shorten(scheduler_output.num_scheduled_tokens)
