"""An engine of vLLM that answers the test questions, in a child process of `benchmarks.vllm`.

The engine is in that process, and its forwards are counted where its executor starts them.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import psutil
import torch

from citer.decoding.answer import Work

ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",  # so that the seconds of the processor are those of the work
}
INTERPRETED = {"TRITON_INTERPRET": "1"}  # without a GPU
GPU = torch.cuda.is_available()
# Three engines share a GPU of 80 GB.
DTYPE, CACHE_BYTES = ("bfloat16", 3 * 2**30) if GPU else ("float32", 2**28)


class Setup(NamedTuple):
    """An engine and what it is asked. `engine`: further arguments of vllm.LLM."""

    llm: str
    slots: int  # at most
    engine: Mapping[str, Any]
    prompts: Sequence[Sequence[int]]
    stops: Sequence[int]
    new_tokens: int


class Engine:
    """vLLM with counters: `llm`, `visits` (a row's part of a forward) and `drafted` tokens."""

    def __init__(self, setup: Setup) -> None:
        if not GPU:
            import benchmarks.interpreter  # noqa: F401  before vLLM
        from vllm import LLM

        self.setup = setup
        self.vllm = LLM(
            setup.llm,
            dtype=DTYPE,
            max_model_len=256,
            max_num_seqs=setup.slots,
            block_size=32,
            kv_cache_memory_bytes=CACHE_BYTES,
            gpu_memory_utilization=0.05,  # must be free at the start; the cache does not follow it
            enforce_eager=not GPU,
            enable_prefix_caching=False,  # every run prefills
            disable_log_stats=False,  # for the times of each request
            **setup.engine,
        )
        core = self.vllm.llm_engine.engine_core.engine_core
        self.scheduler, executor = core.scheduler, core.model_executor
        self._execute, executor.execute_model = executor.execute_model, self._counted
        self.worker: Any = executor.driver_worker.worker

    def run(self, rule: str | None, slots: int, asked: int) -> dict[str, Any]:
        """Answer the first prompts, `slots` at a time. Return the answers and what was measured."""
        from vllm import SamplingParams

        setup = self.setup
        params = SamplingParams(
            temperature=0,
            max_tokens=setup.new_tokens,
            stop_token_ids=list(setup.stops),
            extra_args={"citer": {"rule": rule}} if rule else None,
        )
        prompts: Any = [{"prompt_token_ids": list(ids)} for ids in setup.prompts[:asked]]
        self.scheduler.max_num_active_reqs = slots
        self.llm, self.visits, self.drafted = Work(), 0, 0
        before = self._slm_steps
        started = time.perf_counter(), time.process_time()
        outputs = self.vllm.generate(prompts, params, use_tqdm=False)
        ended = time.perf_counter(), time.process_time()
        answers = [list(output.outputs[0].token_ids) for output in outputs]
        times: Any = [output.metrics for output in outputs]
        # Without the wait for a place.
        waited = [each.last_token_ts - each.scheduled_ts for each in times]
        return {
            "answers": answers,
            "tokens/s": sum(map(len, answers)) / (ended[0] - started[0]),
            "p99 s": sorted(waited)[len(waited) * 99 // 100],
            "llm": asdict(self.llm),
            "slm_steps": self._slm_steps - before,
            "visits": self.visits,
            "drafted": self.drafted,
            "seconds": ended[0] - started[0],
            "processor": ended[1] - started[1],
            "resident_mb": psutil.Process().memory_info().rss / 1e6,
        }

    @property
    def _slm_steps(self) -> int:
        total = self.worker.citer_total() if hasattr(self.worker, "citer_total") else {}
        return int(total.get("slm_steps", 0))

    def _counted(self, step: Any, *args: Any, **kwargs: Any) -> Any:
        new = step.num_scheduled_tokens
        if new:
            cached = step.scheduled_cached_reqs
            read = dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
            read |= {each.req_id: each.num_computed_tokens for each in step.scheduled_new_reqs}
            self.llm.add(sum(new.values()), sum(read[key] + count for key, count in new.items()))
            self.visits += len(new)
            self.drafted += sum(map(len, step.scheduled_spec_decode_tokens.values()))
        return self._execute(step, *args, **kwargs)


ENGINE = list[Engine]()


def start(setup: Setup) -> None:
    """Start the engine of this process."""
    ENGINE.append(Engine(setup))


def answer(rule: str | None, slots: int, asked: int) -> dict[str, Any]:
    """Let it answer: see `Engine.run`."""
    return ENGINE[0].run(rule, slots, asked)
