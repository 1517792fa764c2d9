"""Compare routing inside vLLM with vLLM alone and with its own speculation, on one pair.

    python -m benchmarks.vllm       # after `citer run`, in an environment that has vLLM

Writes `benchmarks/results/vllm.{json,md}`. Every method answers the same test questions, greedily.
Each has an engine in a child process (`benchmarks.inside`), and the engines work in turn: what else
runs on the machine slows all of them alike. `draft_model`, vLLM's own speculation, takes the same
SLM, with wider heads on a CPU, and all numbers of drafts that routing takes. Without a GPU, vLLM's
kernels are interpreted, so that seconds mean nothing and one round is enough.
"""

import json
import math
import os
import shutil
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from multiprocessing import get_context
from operator import itemgetter
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
import typer
from safetensors.torch import load_file, save_file
from torch import Tensor

from benchmarks import inside
from benchmarks.report import RESULTS, machine, markdown, write_results
from citer.config.params import Params, load_params
from citer.data.problems import Problem, read_problems
from citer.data.tasks.grading import assess
from citer.decoding.answer import Work
from citer.decoding.policy import scorer_for, weight_bytes
from citer.evaluation.cost import Prices
from citer.evaluation.methods import Row
from citer.evaluation.sweep import request
from citer.models.bundle import read_bundle, read_card, write_bundle
from citer.models.folder import PairFolder
from citer.models.pair import Pair, load_pair
from citer.progress import progress
from citer.rule import Rule
from citer.stages import paths
from citer.stages.folders import finetuned_pair
from citer.storage.tables import read_json, write_json

TASK = "math"
SLOTS = (8, 32)
CAPS = (8, 16, 24)  # drafts of a row for one visit, at most
GPU = torch.cuda.is_available()
ROUNDS, QUESTIONS = (3, 256) if GPU else (1, 96)
ALONE = "LLM alone"
EXACT = Rule("risk", 0.4, 1)
FACTOR = 2  # of the width of a head


class Method(NamedTuple):
    """`engine`: arguments of vllm.LLM, as JSON. `drafts`: at most, of a row for one visit."""

    name: str
    engine: str
    drafts: int = 0
    rule: Rule | None = None


class Study:
    """The last run's pair and router, and the questions."""

    def __init__(self, params: Params) -> None:
        folders = finetuned_pair(params)
        self.llm, self.slm = folders.llm.path, folders.slm.path
        self.pair: Pair = load_pair(folders, params.pair)
        last = max(map(int, params.iterations))
        self.bundle = paths.router(last)
        self.chosen = Rule(**read_json(paths.report(last) / "threshold.json")["rule"])
        self.new_tokens = params.decode.max_new_tokens
        asked = read_problems(paths.referenced("test"))
        self.problems = [problem for problem in asked if problem.task == TASK][:QUESTIONS]

    def alone(self) -> Method:
        return Method(ALONE, "{}")

    def drafting(self, drafts: int, slm: Path, router: Path) -> Iterator[Method]:
        """Yield the methods that draft with this SLM."""
        model = {"method": "draft_model", "model": str(slm), "num_speculative_tokens": drafts}
        own: dict[str, Any] = {"speculative_config": model}
        yield Method("draft_model", json.dumps(own), drafts)
        settings = {"router": str(router), "rule": f"{EXACT}"}
        engine = json.dumps(own | {"additional_config": {"citer": settings}})
        for rule in (self.chosen, EXACT):
            asked = replace(rule, cap=drafts)
            yield Method(f"`{replace(rule, cap=0)}`", engine, drafts, asked)

    def setup(self, method: Method) -> inside.Setup:
        engine, stops = json.loads(method.engine), self.pair.eos_ids
        prompts = [request(problem, self.pair).prompt_ids for problem in self.problems]
        return inside.Setup(str(self.llm), max(SLOTS), engine, prompts, stops, self.new_tokens)

    def row(self, method: Method, run: Row) -> Row:
        """Return what a run did: the same in every round, but for the seconds."""
        slm, llm = self._work(method, run)
        scorer = scorer_for(read_bundle(self.bundle)[0], method.rule) if method.rule else None
        prices = Prices.of(self.pair, weight_bytes(scorer) if scorer else 0)
        return {
            "method": method.name,
            "drafts": method.drafts,
            "right": sum(map(self._right, self.problems, run["answers"])),
            "LLM forwards": llm.forwards,
            "SLM steps": slm.forwards,
            "drafted": run["drafted"],
            "bytes": prices.moved(slm, llm),
        }

    def _work(self, method: Method, run: Row) -> tuple[Work, Work]:
        """Return the work of both models. Every step of the SLM runs for all rows of the batch."""
        llm = Work(**run["llm"])
        steps = run["slm_steps"] if method.rule else method.drafts * llm.forwards
        if not steps:
            return Work(), llm
        positions = llm.positions + (steps - llm.forwards) * run["visits"] / llm.forwards
        return Work(steps, round(positions), round(steps * llm.kv_read / llm.forwards)), llm

    def _right(self, problem: Problem, ids: Sequence[int]) -> bool:
        return ids[-1] in self.pair.eos_ids and assess(problem, self.pair.text(ids)).correct


class Engines(ExitStack):
    """Child processes, each with an engine, started when they are first asked."""

    def __init__(self, study: Study) -> None:
        super().__init__()
        self._study = study
        self._started: dict[str, ProcessPoolExecutor] = {}

    def run(self, method: Method, slots: int) -> Row:
        if method.engine not in self._started:
            setup = self._study.setup(method)
            process = ProcessPoolExecutor(1, get_context("spawn"), inside.start, (setup,))
            self._started[method.engine] = self.enter_context(process)
        rule = str(method.rule) if method.rule else None
        run: Row = self._started[method.engine].submit(inside.answer, rule, slots).result()
        return run


Runs = dict[tuple[int, Method], list[Row]]  # by sequences and method


def race(study: Study, slm: Path, router: Path) -> Runs:
    """Let all methods answer in turn, in several rounds for each number of drafts."""
    runs: Runs = defaultdict(list)
    with Engines(study) as kept, progress("vllm", len(CAPS) * ROUNDS, "rounds") as advance:
        for drafts in CAPS:
            drafting = list(study.drafting(drafts, slm, router))
            with Engines(study) as engines:
                for _ in range(ROUNDS):
                    for slots in SLOTS:
                        alone = kept.run(study.alone(), slots)
                        turn = {study.alone(): alone}
                        turn |= {each: engines.run(each, slots) for each in drafting}
                        for method, run in turn.items():
                            runs[slots, method].append(compared(run, alone))
                    advance(1)
    return runs


def compared(run: Row, alone: Row) -> Row:
    """Return a run with its seconds, and how its answers compare, relative to the LLM alone."""
    pairs = zip(run["answers"], alone["answers"], strict=True)
    shares = {
        "identical": sum(own == theirs for own, theirs in pairs),
        "seconds": run["processor"] / alone["processor"],
        "clock": run["seconds"] / alone["seconds"],
    }
    return run | shares


def rows(study: Study, runs: Runs) -> list[Row]:
    """Return what each method did; the bytes are relative to the LLM alone, too."""
    done = [
        {"sequences": slots}
        | study.row(method, own[0])
        | {name: median(run[name] for run in own) for name in ("identical", "seconds", "clock")}
        | {"MB": int(own[-1]["resident_mb"])}
        for (slots, method), own in runs.items()
    ]
    moved = {row["sequences"]: row["bytes"] for row in done if row["method"] == ALONE}
    return [row | {"bytes": row["bytes"] / moved[row["sequences"]]} for row in done]


def widen(source: Path, target: Path) -> None:
    """Write a model folder, without tokenizer, with heads `FACTOR` times as wide.

    The wide model computes the same function; vLLM's attention on CPUs has no heads below 32. New
    dimensions of queries, keys and values are 0. The rotary frequencies of a head with d dimensions
    are those at the even places of one with 2 d, so pair i of a narrow head becomes pair 2 i.
    Queries grow by √2, because attention divides by the root of the width. The model is stored as
    Llama, whose configuration has a head size of its own.
    """
    config = read_json(source / "config.json")
    heads = config["num_attention_heads"]
    width = config["hidden_size"] // heads
    weights = load_file(source / "model.safetensors")
    changed = {name: _wide(name, weight, width) for name, weight in weights.items()}
    changed |= {
        name.replace("q_proj.bias", "o_proj.bias"): torch.zeros(config["hidden_size"])
        for name in weights
        if name.endswith("q_proj.bias")
    }
    target.mkdir(parents=True, exist_ok=True)
    save_file(changed, target / "model.safetensors", {"format": "pt"})
    llama = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": True}
    write_json(target / "config.json", config | llama | {"head_dim": FACTOR * width})


def _wide(name: str, weight: Tensor, width: int) -> Tensor:
    kind = name.split(".")[-2]
    if kind == "q_proj":
        return _rows(weight, width) * math.sqrt(FACTOR)
    if kind in ("k_proj", "v_proj"):
        return _rows(weight, width)
    return _rows(weight.T, width).T.contiguous() if kind == "o_proj" else weight


def _rows(weight: Tensor, width: int) -> Tensor:
    """Put row i of each head at place `FACTOR` i of a wider head, and zeros between."""
    heads = weight.unflatten(0, (-1, width))
    wide = heads.new_zeros(len(heads), FACTOR * width, *heads.shape[2:])
    wide[:, ::FACTOR] = heads
    return wide.flatten(0, 1)


def drafter(study: Study, folder: Path) -> tuple[Path, Path]:
    """Return the SLM and the router that vLLM can load: on a CPU, copies with wider heads."""
    if GPU:
        return study.slm, study.bundle
    slm, router = folder / "slm", folder / "router"
    shutil.copytree(study.slm, slm)
    widen(study.slm, slm)
    heads, card = read_bundle(study.bundle)
    prompts = read_card(study.bundle).prompts
    identity = PairFolder(slm, study.llm, prompts).identity(card["dtype"])
    write_bundle(router, heads, card | identity)
    return slm, router


def main() -> None:
    """Let all methods answer inside vLLM, and write what they took."""
    os.environ |= inside.ENVIRONMENT | ({} if GPU else inside.INTERPRETED)
    study = Study(load_params())
    with TemporaryDirectory() as folder:
        runs = race(study, *drafter(study, Path(folder)))
    order = itemgetter("sequences", "method", "drafts")
    found = sorted(rows(study, runs), key=order)
    results = {"rows": found, "machine": machine()}
    write_results(RESULTS / "vllm", results, markdown(found))


if __name__ == "__main__":
    typer.run(main)
