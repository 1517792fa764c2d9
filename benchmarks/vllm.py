"""Compare routing inside vLLM with vLLM alone and with its own speculation, on one pair.

    python -m benchmarks.vllm       # after `citer run`, in an environment that has vLLM

Writes `benchmarks/results/vllm.{json,md}`. Every method answers the same test questions, greedily,
in a child process with an engine of its own (`benchmarks.inside`). Drafting by `draft_model` takes
the same SLM, with wider heads (`benchmarks.padded`). A killed study keeps the runs of finished
children in `benchmarks/results/.vllm/` and continues.
"""

import hashlib
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, TextIO

import torch
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.inside import Setup
from benchmarks.lockstep import EXACT, RESULTS
from benchmarks.padded import widen
from benchmarks.pairs import CPU, NEW_TOKENS, PROMPT, Sizes, random_subject
from benchmarks.report import machine
from citer.config import Params, load_params
from citer.data.problems import Problem, read_problems
from citer.data.tasks.grading import assess
from citer.decoding.lane import Lane
from citer.decoding.policy import ScoredBy, head_for
from citer.decoding.reading import Drafts
from citer.decoding.work import Work
from citer.evaluation.cost import Prices
from citer.evaluation.methods import Row
from citer.evaluation.sweep import request
from citer.io import digest, read_json, replacing, write_json
from citer.models.bundle import read_bundle
from citer.models.feed import Turn
from citer.models.pair import Pair, load_pair
from citer.rule import Rule
from citer.stages import paths
from citer.stages.folders import finetuned_pair

KEPT = RESULTS / ".vllm"  # the runs of an unfinished study
TASK, QUESTIONS = "math", 500
SLOTS = (8, 32)
CAP = 16  # of routed drafts: the best of `benchmarks.lockstep` for this pair
GAMMA = 8  # drafts of vLLM's own methods
ALONE = "vLLM alone"
COLUMNS = {
    "right": "{:.0f}",
    "LLM forwards": "{:.0f}",
    "SLM steps": "{:.0f}",
    "drafted": "{:.0f}",
    "accepted": "{:.0f}",
    "rejected": "{:.0f}",
    "bytes": "{:.3f}",
    "seconds": "{:.2f}",
    "identical": "{:.0f}",
}


class Method(NamedTuple):
    """`engine`: arguments of vllm.LLM. `gamma`: drafts of each row, by an SLM without a router."""

    name: str
    engine: Mapping[str, Any]
    rules: Sequence[Rule | None] = (None,)
    times: int = 1  # runs of each rule
    gamma: int = 0


class Study:
    """The last run's pair and router, and the questions."""

    def __init__(self, params: Params) -> None:
        folders = finetuned_pair(params)
        self.llm, self.slm = folders.llm.path, folders.slm.path
        self.pair: Pair = load_pair(folders, params.pair)
        last = max(map(int, params.iterations))
        self.bundle = paths.router(last)
        self.models = folders.llm.digest, folders.slm.digest, digest(self.bundle)
        self.chosen = Rule(**read_json(paths.report(last) / "threshold.json")["rule"])
        self.new_tokens = params.evaluate.max_new_tokens
        asked = read_problems(paths.referenced("test"))
        self.problems = [problem for problem in asked if problem.task == TASK][:QUESTIONS]

    def methods(self, wide: Path) -> list[Method]:
        settings = {"router": str(self.bundle), "slm": str(self.slm), "rule": str(self.chosen)}
        routed = {
            "speculative_config": _drafts("custom_class", CAP, model="citer.vllm.RoutedProposer"),
            "additional_config": {"citer": settings},
        }
        ngram = _drafts("ngram", GAMMA, prompt_lookup_max=4, prompt_lookup_min=2)
        draft_model = _drafts("draft_model", GAMMA, model=str(wide))
        return [
            Method(ALONE, {}, times=2),
            Method("routed", routed, (self.chosen, EXACT), times=2),
            Method("draft_model", {"speculative_config": draft_model}, gamma=GAMMA),
            Method("ngram", {"speculative_config": ngram}),
        ]

    def rows(self, method: Method, runs: Sequence[Row], slots: int) -> Iterator[Row]:
        """Yield a row for each rule. Runs of a rule differ in seconds only; the fastest counts."""
        for rule in method.rules:
            run = min(_of(runs, rule), key=lambda run: run["seconds"])
            slm, llm = self._work(method, run)
            scorer = head_for(read_bundle(self.bundle)[0], rule) if rule else None
            prices = Prices.of(self.pair, scorer.weight_bytes if scorer else 0)
            tokens = sum(map(len, run["answers"]))
            yield {
                "method": f"{method.name}, {rule}" if rule else method.name,
                "sequences": slots,
                "right": sum(map(self._right, zip(self.problems, run["answers"], strict=True))),
                "tokens": tokens,
                "LLM forwards": llm.forwards,
                "SLM steps": slm.forwards,
                "drafted": run["drafted"],
                "accepted": tokens - run["visits"],
                "rejected": run["drafted"] - (tokens - run["visits"]),
                "bytes": prices.moved(slm, llm),
                "seconds": run["seconds"],
                "answers": run["answers"],
            }

    def _work(self, method: Method, run: Row) -> tuple[Work, Work]:
        """Return the work of both models. vLLM's own drafts run on all rows, `gamma` times."""
        slm, llm = Work(**run["slm"]), Work(**run["llm"])
        if method.gamma:
            steps = method.gamma * llm.forwards
            positions = llm.positions + (method.gamma - 1) * run["visits"]
            slm = Work(steps, positions, method.gamma * llm.kv_read)
        return slm, llm

    def _right(self, answered: tuple[Problem, Sequence[int]]) -> bool:
        problem, ids = answered
        ended = ids[-1] in self.pair.eos_ids
        return ended and assess(problem, self.pair.text(ids)).correct


def _drafts(method: str, count: int, **more: Any) -> Row:
    return {"method": method, "num_speculative_tokens": count, **more}


def _of(runs: Sequence[Row], rule: Rule | None) -> list[Row]:
    return [run for run in runs if run["rule"] == (rule and str(rule))]


def answered(study: Study, method: Method, slots: int) -> list[Row]:
    """Return the runs of a method, which a child process writes if it has not yet."""
    prompts = [request(problem, study.pair).prompt_ids for problem in study.problems]
    rules = [None if rule is None else str(rule) for rule in method.rules] * method.times
    stops, llm = study.pair.eos_ids, str(study.llm)
    setup = Setup(llm, slots, method.engine, prompts, stops, study.new_tokens, rules)
    content = json.dumps([setup, study.models])  # the next retraining has the same folders
    name = hashlib.blake2b(content.encode(), digest_size=8).hexdigest()
    given, out = KEPT / f"{name}.setup.json", KEPT / f"{name}.json"
    if not out.exists():
        write_json(given, setup._asdict())
        subprocess.run([sys.executable, "-m", "benchmarks.inside", given, out], check=True)
    runs: list[Row] = read_json(out)
    return runs


def relative(rows: Sequence[Row]) -> list[Row]:
    """Return rows with bytes and seconds relative to vLLM alone at the same number of sequences."""
    alone = {row["sequences"]: row for row in rows if row["method"] == ALONE}
    return [_relative(row, alone[row["sequences"]]) for row in rows]


def _relative(row: Row, alone: Row) -> Row:
    pairs = zip(row["answers"], alone["answers"], strict=True)
    shares = {name: row[name] / alone[name] for name in ("bytes", "seconds")}
    kept = {name: value for name, value in row.items() if name != "answers"}
    return kept | shares | {"identical": sum(own == theirs for own, theirs in pairs)}


def python_share(runs: Sequence[Row], slots: int) -> Row:
    """Return the seconds of the proposer's Python per SLM step, against a step of the CPU pair.

    The Python is all of `propose` but the SLM's forwards, their logits and scores.
    """
    steps = sum(run["slm"]["forwards"] for run in runs)
    spent = sum(run["clocks"]["propose"] - run["clocks"]["slm"] for run in runs)
    own, step = spent / steps, _step_seconds(slots)
    return {"sequences": slots, "python": own, "slm step": step, "share": own / step}


@torch.inference_mode()
def _step_seconds(rows: int) -> float:
    """Return the median seconds of an SLM step of the pair `cpu-fp32`, with its router."""
    subject = random_subject(
        "cpu-fp32", Sizes(CPU.slm, CPU.slm), torch.float32, torch.device("cpu")
    )
    lane = Lane(subject.pair.slm, rows)
    drafts = Drafts(subject.pair, (ScoredBy(subject.head),))
    ids, seconds = list(range(PROMPT)), []
    for length in range(PROMPT, PROMPT + NEW_TOKENS // 8):
        started = time.perf_counter()
        lane.consume([Turn(row, ids[:1] * length, [(0, 0)]) for row in range(rows)], drafts)
        seconds.append(time.perf_counter() - started)
    return median(seconds[1:])


def write(rows: Sequence[Row], shares: Sequence[Row], memory: Sequence[Row], file: TextIO) -> None:
    console = Console(file=file, width=160)
    table = Table("sequences", "method", *COLUMNS, box=box.MARKDOWN)
    for row in rows:
        figures = (shape.format(row[name]) for name, shape in COLUMNS.items())
        table.add_row(str(row["sequences"]), row["method"], *figures)
    console.print(table)
    for row in shares:
        ms = (f"{row[name] * 1000:.2f} ms" for name in ("python", "slm step"))
        console.print(f"\nPython per SLM step, {row['sequences']} sequences: {' of '.join(ms)}")
    for row in memory:
        console.print(f"\nMB in memory after {row['requests']} requests: {row['resident_mb']:.0f}")


def main() -> None:
    study = Study(load_params())
    rows, shares, memory = list[Row](), list[Row](), list[Row]()
    widen(study.slm, KEPT / "wide")
    for slots in SLOTS:
        for method in study.methods(KEPT / "wide"):
            runs = answered(study, method, slots)
            rows += study.rows(method, runs, slots)
            if method.name == "routed":
                shares.append(python_share(runs, slots))
                memory += _memory(runs, len(study.problems), slots)
    compared = relative(rows)
    results = {"rows": compared, "python": shares, "memory": memory, "machine": machine()}
    write_json(RESULTS / "vllm.json", results)
    with replacing(RESULTS / "vllm.md") as aside, aside.open("w") as file:
        write(compared, shares, memory, file)
    shutil.rmtree(KEPT)
    print((RESULTS / "vllm.md").read_text())


def _memory(runs: Sequence[Row], questions: int, slots: int) -> Iterator[Row]:
    for number, run in enumerate(runs, 1):
        counted = {"sequences": slots, "requests": number * questions}
        yield counted | {"resident_mb": run["resident_mb"]}


if __name__ == "__main__":
    main()
