"""The private names of vLLM's worker that routing touches (Model Runner V2).

vLLM's worker imports `Extension` before it makes its model runner. This module then puts two
subclasses in the place of their bases. Without settings of citer they do what their bases do.
"""

from contextlib import suppress
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from vllm.config import get_current_vllm_config, set_current_vllm_config
from vllm.model_executor.model_loader.reload.inplace import reload_weights
from vllm.v1.worker.gpu import model_runner
from vllm.v1.worker.gpu.spec_decode.rejection_sampler import RejectionSampler
from vllm.v1.worker.gpu.spec_decode.standalone_ar import speculator
from vllm.v1.worker.gpu.spec_decode.standalone_ar.speculator import StandaloneARSpeculator

from citer.models.bundle import read_bundle
from citer.models.router import Router
from citer.models.vocabulary import Vocabulary
from citer.rule import LLM
from citer.vllm import KEY
from citer.vllm.counts import Audited
from citer.vllm.drafting import Flag, Round
from citer.vllm.loading import Served
from citer.vllm.routing import Drafter, Routing, Rows

STATE = "citer_routing"  # attribute of a VllmConfig


class Extension:
    """What vLLM's worker answers to questions of the API. vLLM adds these methods to its worker."""

    model_runner: Any

    def citer_total(self) -> dict[str, int]:
        """See `Counts.total`."""
        return routing_of(self.model_runner.vllm_config).counts.total

    def citer_audited(self, request_id: str) -> Audited:
        """See `Counts.take`."""
        return routing_of(self.model_runner.vllm_config).counts.take(request_id)

    def citer_take(self, served: dict[str, Any], slm: str | None) -> None:
        """Take up another version while no request runs, and the weights of its SLM, if given."""
        config = self.model_runner.vllm_config
        routing, new = routing_of(config), Served(**served)
        # If anything fails from here on, no request is routed.
        routing.served = replace(routing.served, default=str(LLM), router="")
        if slm:
            own, model = copy(config), self.model_runner.get_draft_model()
            own.model_config = config.speculative_config.draft_model_config
            with set_current_vllm_config(config):
                reload_weights(own, model, None, slm, True)
            if config.device_config.device_type == "cpu":
                # vLLM packs weights there, and forgets a tied head.
                model.lm_head.quant_method.process_weights_after_loading(model.lm_head)
        assert routing.drafter  # a router has one
        new, routing.drafter.router = _read(new, config.device_config.device)
        routing.drafter.scorers.clear()
        routing.served = new


def routing_of(config: Any) -> Routing:
    """Return the routing of an engine, which its speculator and its sampler share."""
    if not hasattr(config, STATE):
        device, slots = config.device_config.device, config.scheduler_config.max_num_seqs
        served, router = _read(Served(**config.additional_config[KEY]), device)
        drafter = _drafter(router, config) if served.scored else None
        setattr(config, STATE, Routing(served, slots, device, drafter))
    routing: Routing = getattr(config, STATE)
    return routing


def _read(served: Served, device: torch.device) -> tuple[Served, Router]:
    """Return the router of a server, which has the heads that this process finds."""
    router = (read_bundle(Path(served.router))[0] if served.router else Router({})).to(device)
    return replace(served, heads=tuple(router.heads)), router


def _drafter(router: Router, config: Any) -> Drafter:
    models = config.model_config, config.speculative_config.draft_model_config
    size, device = min(model.get_vocab_size() for model in models), config.device_config.device
    ends = (end for model in models for end in _eos_ids(model) if end < size)
    eos_ids = tuple(dict.fromkeys(ends))
    eos_E = torch.tensor(eos_ids, dtype=torch.long, device=device)
    done = Flag(device, together=config.parallel_config.tensor_parallel_size > 1)
    return Drafter(router, Vocabulary(size, eos_ids), eos_E, done)


def _eos_ids(model: Any) -> list[int]:
    text = getattr(model.hf_text_config, "eos_token_id", None)
    given = (model.try_get_generation_config().get("eos_token_id"), text)
    ids = (own if isinstance(own, list) else [own] for own in given)
    return [end for own in ids for end in own if end is not None]


WRITTEN = 4  # place of `num_sampled` among the arguments of `propose` after the batch


class _RoundEnded(Exception):  # noqa: N818  no error
    """Ends vLLM's loop of drafts."""


class RoutedSpeculator(StandaloneARSpeculator):
    """vLLM's draft model, whose drafts end by each request's rule."""

    _round: Round | None = None  # the present one
    _logits_NV: Tensor

    def compute_draft_logits(self, hidden_states: Tensor, spec_step_idx: int) -> Tensor:
        self._logits_NV = super().compute_draft_logits(hidden_states, spec_step_idx)
        return self._logits_NV

    def sample_draft(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        token_N = super().sample_draft(hidden_states, *args, **kwargs)
        if self._round:
            drafter = routing_of(self.vllm_config).drafter
            assert drafter
            self.draft_tokens[: len(token_N), self._round.steps] = token_N
            score_NC = drafter.scores(token_N, hidden_states, self._logits_NV)
            if not self._round.take(token_N, score_NC):
                raise _RoundEnded
        return token_N

    def propose(self, input_batch: Any, *args: Any, **kwargs: Any) -> Tensor:
        if kwargs.get("dummy_run") or KEY not in (self.vllm_config.additional_config or {}):
            return super().propose(input_batch, *args, **kwargs)
        routing, drafts_NK = routing_of(self.vllm_config), self.draft_tokens
        most = kwargs.get("num_speculative_tokens") or 0
        slots, slot_N = input_batch.idx_mapping_np, input_batch.idx_mapping
        self._round = routing.begin(slots, slot_N, args[WRITTEN], most)
        if self._round:
            with suppress(_RoundEnded):
                super().propose(input_batch, *args, **kwargs)
            routing.end(slot_N, self._round)
            self._round = None
        return drafts_NK[: input_batch.num_reqs]


class RoutedRejectionSampler(RejectionSampler):
    """vLLM's rejection sampler, which withdraws drafts after a rule's end and relaxes by audits."""

    def __init__(self, sampler: Any, *args: Any, **kwargs: Any) -> None:
        config = get_current_vllm_config()
        self._routing = routing_of(config) if KEY in (config.additional_config or {}) else None
        if self._routing:
            sampler.add_request = partial(_add_request, self._routing, sampler.add_request)
            sampler = copy(sampler)  # vLLM samples by the other one where nothing is verified
            own = self._routing, sampler.sampling_states, sampler.apply_sampling_params
            sampler.apply_sampling_params = partial(_audited, *own)
        super().__init__(sampler, *args, **kwargs)

    def __call__(
        self, logits: Tensor, input_batch: Any, draft_logits: Any = None, invalid_drafts: Any = None
    ) -> Any:
        if not self._routing:
            return super().__call__(logits, input_batch, draft_logits, invalid_drafts)
        ids = input_batch.input_ids[input_batch.logits_indices]
        rows = Rows(input_batch.expanded_idx_mapping, input_batch.expanded_local_pos, ids)
        invalid_N = self._routing.withdrawn(rows)
        if invalid_drafts is not None:
            invalid_N |= invalid_drafts
        output = super().__call__(logits, input_batch, draft_logits, invalid_N)
        first_N = input_batch.positions[input_batch.logits_indices] + 1
        first_N = first_N - self.sampler.req_states.prompt_len.gpu[rows.slot_N]
        given = input_batch.req_ids, rows, input_batch.idx_mapping, output.num_sampled, first_N
        self._routing.count(*given)
        return output


def _add_request(routing: Routing, add: Any, slot: int, params: Any) -> None:
    add(slot, params)
    routing.add(slot, routing.served.of(params))


def _audited(
    routing: Routing, states: Any, apply: Any, logits: Tensor, slot_N: Tensor, *args: Any
) -> Tensor:
    """Return the logits of vLLM's sampler, by which its verification accepts as rules say."""
    own = apply(logits, slot_N, *args)
    _, slots, _, input_N, local_N, *_ = args
    if routing.rules.relaxed(slots):
        # vLLM may return log-probabilities of the logits that it has given.
        own = own.to(torch.float32, copy=own is logits)
    routing.audit(own, Rows(slot_N, local_N, input_N), slots, states.temperature.gpu[slot_N])
    return own


model_runner.RejectionSampler = RoutedRejectionSampler
speculator.StandaloneARSpeculator = RoutedSpeculator
