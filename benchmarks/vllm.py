"""Compare routing inside vLLM with vLLM alone and with its own speculation, on one pair.

    python -m benchmarks.vllm       # after `citer run`, in an environment that has vLLM

Writes `benchmarks/results/vllm.{json,md}`, on a GPU `vllm-gpu.{json,md}`. Every method answers the
same test questions, greedily. Each has an engine in a child process (`benchmarks.inside`), and the
engines work in turn: what else runs on the machine slows all of them alike. `draft_model`, vLLM's
own speculation, takes the same SLM and all numbers of drafts that routing takes.

The pair is that of the last run, padded (`benchmarks.padded`): on a GPU, to the shapes of Llama 3.2
1B and Llama 3.1 8B in bfloat16. On a CPU, only the heads of the SLM become wider, and vLLM's
kernels are interpreted, so that seconds mean nothing and one round is enough.
"""

import json
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from itertools import cycle, islice, product
from multiprocessing import get_context
from operator import itemgetter
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Annotated, Any, NamedTuple

import typer

from benchmarks import inside
from benchmarks.padded import LLAMA, Shape, pad_pair
from benchmarks.report import RESULTS, command, machine, markdown, write_results
from citer.config.params import Params, load_params
from citer.data.problems import Problem, read_problems
from citer.data.tasks.grading import assess
from citer.decoding.answer import Work
from citer.decoding.policy import scorer_for, weight_bytes
from citer.evaluation.cost import Prices
from citer.evaluation.methods import Row
from citer.evaluation.sweep import request
from citer.models.bundle import read_bundle
from citer.models.folder import PairFolder
from citer.models.pair import load_pair
from citer.progress import progress
from citer.rule import Rule
from citer.stages import paths
from citer.stages.folders import finetuned_pair
from citer.storage.tables import read_json

TASK = "math"
CAPS = (8, 16, 24)  # drafts of a row for one visit, at most
GPU = inside.GPU
ROUNDS = 2 if GPU else 1
ASKED = {1: 6, 8: 64, 32: 128, 128: 256} if GPU else {8: 96, 32: 96}  # questions, by sequences
TARGET = RESULTS / ("vllm-gpu" if GPU else "vllm")
EXACT = Rule("risk", 0.4, 1)
NARROWEST = 32  # dimensions of a head, in vLLM's attention on a CPU


class Method(NamedTuple):
    """`engine`: arguments of vllm.LLM, as JSON. `drafts`: at most, of a row for one visit."""

    name: str
    engine: str
    drafts: int = 0
    rule: Rule | None = None


ALONE = Method("LLM alone", "{}")


class Study:
    """The last run's pair and router, padded, and the questions."""

    def __init__(self, params: Params, folder: Path) -> None:
        last = max(map(int, params.iterations))
        folders = padded(params, paths.router(last), folder)
        self.llm, self.slm, self.bundle = folders.llm.path, folders.slm.path, folder / "router"
        placement = params.pair.model_copy(update={"dtype": inside.DTYPE})
        self.pair = load_pair(folders, placement, weights=False)
        self.chosen = Rule(**read_json(paths.report(last) / "threshold.json")["rule"])
        self.new_tokens = params.decode.max_new_tokens
        known = read_problems(paths.referenced("test"))
        asked = [problem for problem in known if problem.task == TASK]
        self.problems = list(islice(cycle(asked), max(ASKED.values())))

    def drafting(self, drafts: int) -> Iterator[Method]:
        """Yield the methods that draft with the SLM."""
        model = {"method": "draft_model", "model": str(self.slm), "num_speculative_tokens": drafts}
        own: dict[str, Any] = {"speculative_config": model}
        yield Method("draft_model", json.dumps(own), drafts)
        settings = {"router": str(self.bundle), "rule": f"{EXACT}"}
        engine = json.dumps(own | {"additional_config": {"citer": settings}})
        for rule in (self.chosen, EXACT):
            asked = replace(rule, cap=drafts)
            yield Method(f"`{replace(rule, cap=0)}`", engine, drafts, asked)

    def setup(self, method: Method) -> inside.Setup:
        engine, stops = json.loads(method.engine), self.pair.eos_ids
        prompts = [request(problem, self.pair).prompt_ids for problem in self.problems]
        return inside.Setup(str(self.llm), max(ASKED), engine, prompts, stops, self.new_tokens)

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
    """Child processes, each with an engine, which start side by side."""

    def __init__(self, study: Study, methods: Sequence[Method]) -> None:
        super().__init__()
        self._started: dict[str, ProcessPoolExecutor] = {}
        for method in {each.engine: each for each in methods}.values():
            setup = study.setup(method)
            process = ProcessPoolExecutor(1, get_context("spawn"), inside.start, (setup,))
            self._started[method.engine] = self.enter_context(process)
            process.submit(int)  # starts it

    def run(self, method: Method, slots: int, asked: int) -> Row:
        rule = str(method.rule) if method.rule else None
        run: Row = self._started[method.engine].submit(inside.answer, rule, slots, asked).result()
        return run


MEDIANS = ("identical", "processor", "seconds", "tokens/s", "p99 s")
Runs = dict[tuple[int, Method], list[Row]]  # by sequences and method


def race(study: Study, caps: Sequence[int]) -> Iterator[Runs]:
    """Let all methods answer in turn, in rounds. Yield all runs so far after each turn."""
    runs: Runs = defaultdict(list)
    kept = Engines(study, [ALONE])
    with kept, progress("vllm", len(caps) * ROUNDS * len(ASKED), "turns") as advance:
        for drafts in caps:
            drafting = list(study.drafting(drafts))
            with Engines(study, drafting) as engines:
                turn = {ALONE: kept} | dict.fromkeys(drafting, engines)
                for slots, (method, own) in product(ASKED if GPU else (), turn.items()):
                    own.run(method, slots, slots)  # compiles Triton's kernels
                for slots in [*ASKED] * ROUNDS:
                    found = {each: own.run(each, slots, ASKED[slots]) for each, own in turn.items()}
                    for method, run in found.items():
                        runs[slots, method].append(compared(run, found[ALONE]))
                    advance(1)
                    yield runs


def compared(run: Row, alone: Row) -> Row:
    """Return a run with its seconds, and how its answers compare, relative to the LLM alone."""
    pairs = zip(run["answers"], alone["answers"], strict=True)
    shares = {
        "identical": sum(own == theirs for own, theirs in pairs),
        "processor": run["processor"] / alone["processor"],
        "seconds": run["seconds"] / alone["seconds"],
    }
    return run | shares


def rows(study: Study, runs: Runs) -> list[Row]:
    """Return what each method did; the bytes are relative to the LLM alone, too."""
    done = [
        {"sequences": slots, "questions": ASKED[slots]}
        | study.row(method, own[0])
        | {name: median(run[name] for run in own) for name in MEDIANS}
        | {"MB": int(own[-1]["resident_mb"])}
        for (slots, method), own in runs.items()
    ]
    moved = {row["sequences"]: row["bytes"] for row in done if row["method"] == ALONE.name}
    return [row | {"bytes": row["bytes"] / moved[row["sequences"]]} for row in done]


def padded(params: Params, bundle: Path, target: Path) -> PairFolder:
    """Write the last run's pair and router in shapes that show something.

    On a GPU, those are the shapes of real models. On a CPU, only the heads of the SLM are wider.
    """
    own = finetuned_pair(params)
    slm, llm = Shape.of(own.slm.path), Shape.of(own.llm.path)
    shapes = LLAMA if GPU else (slm._replace(head_dim=max(slm.head_dim, NARROWEST)), llm)
    return pad_pair(own, bundle, target, shapes, inside.DTYPE)


def main(
    drafts: Annotated[list[int] | None, typer.Option(help="Drafts for one visit, at most.")] = None,
) -> None:
    """Let all methods answer inside vLLM, and write what they took."""
    os.environ |= inside.ENVIRONMENT | ({} if GPU else inside.INTERPRETED)
    with TemporaryDirectory() as folder:
        study = Study(load_params(), Path(folder))
        for runs in race(study, drafts or CAPS):
            found = sorted(rows(study, runs), key=itemgetter("sequences", "method", "drafts"))
            write_results(TARGET, {"rows": found, "machine": machine()}, markdown(found))


if __name__ == "__main__":
    command(main)
