"""vLLM's schedulers, which give each request no more places for drafts than its rule can use."""

from dataclasses import replace
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler

from citer.vllm import KEY
from citer.vllm.drafting import most_pending
from citer.vllm.loading import Served


class RoutedScheduler(Scheduler):
    """Shortens the places for drafts, in which vLLM would let the LLM read tokens for nothing."""

    def __init__(self, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
        super().__init__(vllm_config, *args, **kwargs)
        served = Served(**vllm_config.additional_config[KEY])
        # A later version may have others. Then some requests have places for nothing.
        self._served = replace(served, heads=None)

    def add_request(self, request: Any) -> None:
        """Add a request. One that the SLM does not read shares no cached prefix with others."""
        if not self._most(request):
            request.cache_salt = f"{request.cache_salt or ''} unread"
            request.block_hashes = []
            request.update_block_hashes()
        super().add_request(request)

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        for request in self.running:
            request.spec_token_ids = request.spec_token_ids[: self._most(request)]
        return super().schedule(*args, **kwargs)

    def _most(self, request: Any) -> int:
        return most_pending(self._served.of(request.sampling_params))


class RoutedAsyncScheduler(RoutedScheduler, AsyncScheduler):
    pass
