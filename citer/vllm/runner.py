"""The private names of vLLM's worker that routing touches. Those of its API: `citer.vllm.private`.

`hook` changes two functions of vLLM. Both do what they did before, unless the runner's drafter is a
`Hooked`. On a CPU it replaces a third one.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any, NamedTuple

import torch
from torch import Tensor
from vllm.distributed.parallel_state import get_tp_group
from vllm.platforms import current_platform
from vllm.v1.sample import rejection_sampler
from vllm.v1.worker.gpu_model_runner import GPUModelRunner

from citer.errors import InputError
from citer.vllm.accept import Audit, own_logits, set_logits
from citer.vllm.private import check_version

SAMPLER_ARGS = (
    *("draft_token_ids", "num_draft_tokens", "max_spec_len", "cu_num_draft_tokens"),
    *("draft_probs", "target_logits", "bonus_token_ids", "sampling_metadata"),
)
MARK = "citer_audit"  # attribute of vLLM's SamplingMetadata


class Request(NamedTuple):
    """A row of vLLM's batch.

    text_only: whether token ids are all of its input
    params: vLLM's SamplingParams
    """

    key: str
    prompt_tokens: int
    text_only: bool
    params: Any

    @property
    def stops(self) -> set[int]:
        """The ids at which vLLM ends it."""
        stops = {self.params.eos_token_id, *(self.params.stop_token_ids or ())}
        return stops - {None}


class Hooked(ABC):
    """A proposer that knows vLLM's batch, and audits its own drafts."""

    _runner: Any = None
    audit: Audit = Audit(())

    @abstractmethod
    def beta(self, request: Request) -> float:
        """Return β of a request."""

    @property
    def batch(self) -> list[Request]:
        """The requests of this step, in the order of vLLM's batch."""
        states = self._runner.requests
        return [_request(key, states[key]) for key in self._runner.input_batch.req_ids]

    def begin(self, runner: Any) -> None:
        """Prepare the audit of a step."""
        self._runner = runner
        # If a request comes within the cap of the longest sequence, vLLM would replace the drafts
        # of all requests by zeros, which an audit may accept. We never draft beyond that length.
        runner.effective_drafter_max_model_len = runner.max_model_len + runner.num_spec_tokens + 1
        self.audit = Audit([self.beta(request) for request in self.batch])
        setattr(runner.input_batch.sampling_metadata, MARK, self.audit)


def drafts_here() -> bool:
    """Return whether vLLM's scheduler reads the drafts of this tensor-parallel rank."""
    return bool(get_tp_group().is_first_rank)


def hook() -> None:
    """Let proposers of class `Hooked` reach the runner and the rejection sampler.

    Raises InputError if this vLLM is none of those that are known to work.
    """
    check_version()
    if hasattr(GPUModelRunner._sample, "__wrapped__"):
        return
    names = tuple(signature(rejection_sampler.rejection_sample).parameters)
    if names[: len(SAMPLER_ARGS)] != SAMPLER_ARGS:
        raise InputError(f"rejection_sample of vLLM: arguments {names}, expected {SAMPLER_ARGS}")
    GPUModelRunner._sample = _sample(GPUModelRunner._sample)
    rejection_sampler.rejection_sample = _rejection_sample(rejection_sampler.rejection_sample)
    if current_platform.is_cpu():
        rejection_sampler.expand_batch_to_tokens = _expand_batch_to_tokens


def _expand_batch_to_tokens(
    x: Tensor, cu_num_tokens: Tensor, num_tokens: int, replace_from: int = 0, replace_to: int = 0
) -> Tensor:
    """Repeat the value of each row for each of its drafts.

    vLLM 0.32 on a CPU writes into a copy here, and returns memory that nobody has set. Drafts would
    be judged at a random temperature, top-k and top-p.
    """
    counts = cu_num_tokens.diff(prepend=cu_num_tokens.new_zeros(1))
    values = torch.where(x == replace_from, replace_to, x)
    return values.repeat_interleave(counts, output_size=num_tokens)


def _sample(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def sample(self: Any, *args: Any, **kwargs: Any) -> Any:
        drafter = getattr(self, "drafter", None)
        if isinstance(drafter, Hooked):
            drafter.begin(self)
        return original(self, *args, **kwargs)

    return sample


def _rejection_sample(original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def rejection_sample(*args: Any, **kwargs: Any) -> Any:
        draft_N, counts, _, _, _, logits_NV, _, metadata = args[: len(SAMPLER_ARGS)]
        audit: Audit | None = getattr(metadata, MARK, None)
        if audit is None:
            return original(*args, **kwargs)
        draft_N = draft_N.long()
        own_N = own_logits(logits_NV, draft_N)
        greedy = metadata.all_greedy
        temperatures = [0.0] * len(counts) if greedy else metadata.temperature.tolist()
        audit.apply(logits_NV, draft_N, counts, temperatures)
        output = original(*args, **kwargs)
        set_logits(logits_NV, draft_N, own_N)  # vLLM may compute log-probabilities from them
        return output

    return rejection_sample


def _request(key: str, state: Any) -> Request:
    text_only = state.prompt_embeds is None and not state.mm_features
    return Request(key, state.num_prompt_tokens, text_only, state.sampling_params)
