"""Run jobs in a real vLLM, offline and in one process. Also the script that does it.

Model Runner V2 runs in Triton's interpreter: a step takes a second.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.padded import Shape, pad
from citer.config.params import load_params
from citer.data.importing import parse_row
from citer.data.problems import Problem
from citer.demo import toy
from citer.models.folder import PairFolder

ROOT = Path(__file__).parents[2]
SLM, LLM = ROOT / "data/pair/slm", ROOT / "data/pair/llm"
PYTHON = os.environ.get("VLLM_PYTHON", "")
CAP = 16
NATIVE = {
    "PYTHONPATH": str(ROOT),
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
}
ENVIRONMENT = NATIVE | {"TRITON_INTERPRET": "1"}  # before torch imports Triton
ENGINE = {
    "dtype": "float32",
    "max_model_len": 256,
    "max_num_seqs": 8,
    "block_size": 32,
    "enforce_eager": True,
    "disable_log_stats": False,
    "gpu_memory_utilization": 0.05,
}


class Job(NamedTuple):
    """Questions to answer, by number, and the sampling parameters; `rules` in turn, if any."""

    questions: Sequence[int]
    params: Mapping[str, Any] = {}
    rules: Sequence[str] = ()


class Done(NamedTuple):
    """Token ids, and log-probabilities if asked for, of each answer; what the job added up to."""

    answers: list[list[int]]
    logprobs: list[list[float]]
    counts: dict[str, int]
    preemptions: int


def questions(count: int) -> list[Problem]:
    """Return embedded arithmetic questions of the test split."""
    params = load_params(ROOT / "params.yaml")
    rows = islice(toy.rows("math", params.prepare.toy.test, params.seed, "pipeline"), count)
    return [parse_row(row, "math", "reference") for row in rows]


def wide_slm(folder: Path) -> Path:
    """Write the embedded SLM with heads that are wide enough for vLLM on a CPU."""
    target = folder / "slm"
    if not target.exists():
        pad(SLM, target, Shape.of(SLM)._replace(head_dim=32))
    return target


def draft_model(slm: Path) -> dict[str, Any]:
    return {"method": "draft_model", "model": str(slm), "num_speculative_tokens": CAP}


def run(
    folder: Path,
    jobs: Mapping[str, Job],
    settings: dict[str, Any] | None = None,
    speculation: dict[str, Any] | None = None,
    **engine: Any,
) -> dict[str, Done]:
    """Run the jobs in one engine, with these settings of citer and this speculation."""
    out = folder / "done.json"
    own = {"additional_config": {"citer": settings}} if settings else {}
    own |= {"speculative_config": speculation} if speculation else {}
    spec = {"jobs": jobs, "engine": ENGINE | own | engine, "out": str(out)}
    ended = subprocess.run(
        [PYTHON, "-m", "tests.vllm.offline"],
        cwd=ROOT,
        env=os.environ | ENVIRONMENT,
        input=json.dumps(spec),
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    return {name: Done(*done) for name, done in json.loads(out.read_text()).items()}


def _main() -> None:
    import vllm

    import benchmarks.interpreter  # noqa: F401  first

    spec = json.load(sys.stdin)
    engine = vllm.LLM(str(LLM), **spec["engine"])
    done = {name: _done(engine, Job(*job)) for name, job in spec["jobs"].items()}
    Path(spec["out"]).write_text(json.dumps(done))


def _done(engine: Any, job: Job) -> Done:
    prompts = PairFolder(SLM, LLM).prompts
    known = questions(max(job.questions) + 1)
    ids = [{"prompt_token_ids": prompts.prompt_ids(known[n])} for n in job.questions]
    before, preempted = _counts(engine), _preemptions(engine)
    outputs = engine.generate(ids, _params(job), use_tqdm=False)
    counts = {name: value - before[name] for name, value in _counts(engine).items()}
    answers = [choice for output in outputs for choice in output.outputs]
    return Done(
        [list(choice.token_ids) for choice in answers],
        [_logprobs(choice) for choice in answers],
        counts,
        _preemptions(engine) - preempted,
    )


def _params(job: Job) -> list[Any]:
    from vllm import SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    params: dict[str, Any] = {"temperature": 0, "max_tokens": 96, **job.params}
    if "structured_outputs" in params:
        params["structured_outputs"] = StructuredOutputsParams(**params["structured_outputs"])
    rules = [{"citer": {"rule": rule}} for rule in job.rules] or [None]
    return [
        SamplingParams(**params, extra_args=rules[n % len(rules)])
        for n in range(len(job.questions))
    ]


def _logprobs(choice: Any) -> list[float]:
    pairs = zip(choice.token_ids, choice.logprobs or [], strict=False)
    return [step[token].logprob for token, step in pairs]


def _counts(engine: Any) -> dict[str, int]:
    worker = engine.llm_engine.model_executor.driver_worker.worker
    return worker.citer_total() if hasattr(worker, "citer_total") else {}


def _preemptions(engine: Any) -> int:
    [metric] = [m for m in engine.get_metrics() if m.name == "vllm:num_preemptions"]
    return int(metric.value)


if __name__ == "__main__":
    _main()
