"""One engine of vLLM answers the test questions, in the child process of `benchmarks.vllm`.

    python -m benchmarks.inside SETUP.json OUT.json

The engine is in this process, and its forwards are counted where its executor starts them.
"""

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from citer.decoding.work import Work
from citer.io import read_json, write_json

ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
}


class Setup(NamedTuple):
    """An engine and its runs: each answers all prompts by a rule, None if nothing is routed."""

    llm: str
    slots: int
    engine: Mapping[str, Any]  # further arguments of vllm.LLM
    prompts: Sequence[Sequence[int]]
    stops: Sequence[int]
    new_tokens: int
    rules: Sequence[str | None]


class Engine:
    """vLLM with counters: `llm`, `visits` (a row's part of a forward) and `drafted` tokens."""

    def __init__(self, setup: Setup) -> None:
        from vllm import LLM

        self.setup = setup
        self.vllm = LLM(
            setup.llm,
            dtype="float32",
            max_model_len=256,
            max_num_seqs=setup.slots,
            block_size=32,
            enforce_eager=True,
            enable_prefix_caching=False,  # every run prefills
            async_scheduling=False,  # speculation by a proposer excludes it
            **setup.engine,
        )
        executor = self.vllm.llm_engine.engine_core.engine_core.model_executor
        self._execute, executor.execute_model = executor.execute_model, self._counted
        proposer: Any = getattr(executor.driver_worker.worker.model_runner, "drafter", None)
        self.lane = getattr(getattr(proposer, "drafter", None), "lane", None)
        self.clocks = {"propose": 0.0, "slm": 0.0}
        if self.lane:
            proposer.propose = self._timed("propose", proposer.propose)
            self._time_steps(type(self.lane.model), self.lane)

    def run(self, rule: str | None) -> dict[str, Any]:
        """Answer all prompts. Return the answers, what was counted, seconds and memory."""
        from vllm import SamplingParams

        setup = self.setup
        params = SamplingParams(
            temperature=0,
            max_tokens=setup.new_tokens,
            stop_token_ids=list(setup.stops),
            extra_args={"citer": {"rule": rule}} if rule else None,
        )
        prompts: Any = [{"prompt_token_ids": list(ids)} for ids in setup.prompts]
        self.llm, self.visits, self.drafted = Work(), 0, 0
        self.clocks |= dict.fromkeys(self.clocks, 0.0)
        before = asdict(self.lane.total) if self.lane else {}
        started = time.perf_counter()
        outputs = self.vllm.generate(prompts, params, use_tqdm=False)
        seconds = time.perf_counter() - started
        after = asdict(self.lane.total) if self.lane else asdict(Work())
        return {
            "rule": rule,
            "answers": [list(output.outputs[0].token_ids) for output in outputs],
            "llm": asdict(self.llm),
            "slm": {name: value - before.get(name, 0) for name, value in after.items()},
            "visits": self.visits,
            "drafted": self.drafted,
            "seconds": seconds,
            "clocks": dict(self.clocks),
            "resident_mb": _resident() / 1e6,
        }

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

    def _time_steps(self, model: Any, lane: Any) -> None:
        """Time the SLM's forwards, and the logits and scores that are read from their states."""
        consume = lane.consume
        model.consume = self._timed("slm", model.consume)
        lane.consume = lambda turns, read: consume(turns, self._timed("slm", read))

    def _timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            started = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.clocks[name] += time.perf_counter() - started

        return timed


def _resident() -> int:
    """Return the bytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def main(setup_file: Path, out: Path) -> None:
    os.environ |= ENVIRONMENT
    setup = Setup(**read_json(setup_file))
    engine = Engine(setup)
    write_json(out, [engine.run(rule) for rule in setup.rules])


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
