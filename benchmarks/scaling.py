"""How much faster are two workers than one, and what does a unit cost?

    python -m benchmarks.scaling       # after `citer run`, on a quiet machine with two cores

Writes `benchmarks/results/scaling.{json,md}`. The embedded pair is too small to thread. It labels
the preference questions and scores the references of `sft`, with one worker pinned to one core and
with two workers pinned to two, in turn. `by time` is the median over the rounds of the ratio of
speeds. `by CPU time` is 2 x the CPU seconds with one worker / those with two: what two cores of
their own would give if units of work were fine enough. Other processes on the machine disturb it
less.

The overhead is that of a unit that does nothing, in a process that has loaded the pair.
"""

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, TextIO

import psutil
from citer.labelling.chunks import CHUNK
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.workshop import Workshop
from citer.data.problems import read_problems
from citer.decoding.engine import Engine
from citer.decoding.policy import SLM_ALONE
from citer.evaluation.methods import Row
from citer.executors.base import Executor, InLine, Job, Unit
from citer.executors.forked import Forked
from citer.executors.spawned import CPU, Spawned
from citer.labelling.labeller import Labeller
from citer.labelling.rollout import Rollout
from citer.labelling.teacher import half, score
from citer.progress import Advance, progress
from citer.stages import paths
from citer.storage.tables import replacing, write_json

RESULTS = Path("benchmarks/results")
ROUNDS = 5
UNITS = 200  # that do nothing
TARGET = 1.8
KINDS: Mapping[str, Callable[[int], Executor]] = {
    "forked": Forked,
    "a process for each device": lambda workers: Spawned([CPU] * workers),
}


@dataclass(frozen=True)
class Work:
    """The units of a stage, of a job that returns nothing."""

    name: str
    job: Job[Any, None]
    units: Sequence[Unit[Any]]


@dataclass(frozen=True)
class Forgetting:
    """Runs a job and drops its result, which a stage would write to a file."""

    job: Job[Any, Any]

    def __call__(self, inputs: Any, /, *, advance: Advance) -> None:
        self.job(inputs, advance=advance)


def works(shop: Workshop) -> Iterator[Work]:
    """Return labelling and both halves of scoring, in units of 64 problems."""
    limits = shop.params.label
    engine = Engine(shop.pair, limits.slots, limits.max_new_tokens, delayed=True)
    rollout = Rollout(engine, SLM_ALONE, limits.tie)
    labeller = Labeller(shop.preference, shop.examples, rollout, 1)
    keys = shop.tokens["problem_id"].to_numpy()
    starts = [0, *(n for n in range(1, len(keys)) if keys[n] != keys[n - 1])][::CHUNK]
    ends = [*starts[1:], len(keys)]
    chunks = [shop.tokens.slice(a, b - a) for a, b in zip(starts, ends, strict=True)]
    yield Work("label", Forgetting(labeller.label), _units(chunks))
    examples = [*shop.pair.prompts.encode_all(read_problems(paths.referenced("sft"))).items()]
    shards = [dict(examples[n : n + CHUNK]) for n in range(0, len(examples), CHUNK)]
    for model in (shop.pair.slm, shop.pair.local_llm):
        limit = shop.params.score.batch_tokens
        own = partial(score, half(model, shop.pair.vocabulary), batch_tokens=limit)
        yield Work(f"score_{model.name}", Forgetting(own), _units(shards))


def _units(parts: Sequence[Any]) -> list[Unit[Any]]:
    return [Unit(f"part {n}", part) for n, part in enumerate(parts)]


@contextmanager
def pinned(cores: int) -> Iterator[None]:
    """Run this process and those that it starts on the first `cores` cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:cores])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def seconds(executor: Executor, work: Work, cores: int) -> tuple[float, float]:
    """Return the seconds and the CPU seconds of a run, without those of starting processes."""
    with pinned(cores):
        cpu, started = _cpu(), time.perf_counter()
        for _ in executor.run(work.job, work.units, lambda _: None):
            pass
        return time.perf_counter() - started, _cpu() - cpu


def _cpu() -> float:
    """Return the CPU seconds of this process and of all its workers so far."""
    ended = os.times()
    running = [psutil.Process(each.pid).cpu_times() for each in multiprocessing.active_children()]
    return sum(ended[:4]) + sum(each.user + each.system for each in running)


def speedup(work: Work, one: Executor, two: Executor, advance: Advance) -> Row:
    """Run the work with one and with two workers in turn."""
    for executor in (one, two):
        seconds(executor, work, executor.workers)  # starts processes, loads models
        advance(1)
    rounds = []
    for _ in range(ROUNDS):
        rounds.append((*seconds(one, work, 1), *seconds(two, work, 2)))
        advance(2)
    ratios = [slow / fast for slow, _, fast, _ in rounds]
    return {
        "units": len(work.units),
        "seconds of one worker": median(slow for slow, *_ in rounds),
        "by time": median(ratios),
        "least": min(ratios),
        "most": max(ratios),
        "by CPU time": median(2 * slow / fast for _, slow, _, fast in rounds),
    }


def nothing(_: int, /, *, advance: Advance) -> None:
    """Do nothing."""


def overheads() -> Iterator[Row]:
    """Yield the milliseconds of a unit that does nothing, for each executor with one worker."""
    idle = Work("nothing", nothing, [Unit(f"unit {n}", n) for n in range(UNITS)])
    executors: dict[str, Executor] = {"in line": InLine()}
    executors |= {name: make(1) for name, make in KINDS.items()}
    for name, executor in executors.items():
        seconds(executor, idle, 1)
        taken = median(seconds(executor, idle, 1)[0] for _ in range(ROUNDS))
        yield {"executor": name, "ms a unit": 1000 * taken / UNITS}


def write(rows: Sequence[Row], file: TextIO) -> None:
    table = Table(*rows[0], box=box.MARKDOWN)
    for row in rows:
        table.add_row(*(f"{v:.2f}" if type(v) is float else str(v) for v in row.values()))
    Console(file=file, width=160).print(table)


def main() -> None:
    shop = Workshop.open()
    stages = list(works(shop))
    executors = {kind: (make(1), make(2)) for kind, make in KINDS.items()}
    runs = 2 * (ROUNDS + 1) * len(stages) * len(KINDS)
    with progress("scaling", runs, "runs") as advance:
        rows = [
            {"stage": work.name, "executor": kind} | speedup(work, *pair, advance)
            for kind, pair in executors.items()
            for work in stages
        ]
    units = list(overheads())
    write_json(RESULTS / "scaling.json", {"target": TARGET, "two workers": rows, "unit": units})
    with replacing(RESULTS / "scaling.md") as aside, aside.open("w") as file:
        write(rows, file)
        write(units, file)
    print((RESULTS / "scaling.md").read_text())


if __name__ == "__main__":
    main()
