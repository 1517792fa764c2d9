"""Let all sequences join each forward of the LLM: what would it save, and what would it cost?

    python -m benchmarks.joining       # after `citer run`

Writes `benchmarks/results/joining.{json,md}`. The engine delays the LLM until half of the sequences
wait for it; the others go on drafting. Here, those that still have pending tokens visit the LLM
with them. This is lockstep drafting whose rounds end when half of the sequences wait.

A visit that the rule did not call for checks the pending tokens and lets the LLM write the next
one. Under an audit below 1 it can change the answer, which then depends on the other requests of
the batch. Cost: bytes of the forwards that really ran, relative to the LLM alone in the engine.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.lockstep import sized
from citer.config.params import Params, load_params
from citer.data.problems import Problem, read_problems
from citer.data.tasks.grading import assess
from citer.decoding.answer import llm_runs
from citer.decoding.engine import Engine, Event
from citer.decoding.policy import LLM_ALONE, Policy, ScoredBy, head_for
from citer.decoding.sequence import Need, Sequence
from citer.evaluation.cost import Prices
from citer.evaluation.methods import Row
from citer.evaluation.sweep import request
from citer.models.bundle import read_bundle
from citer.models.pair import Pair, load_pair
from citer.models.router import Head
from citer.rule import Rule
from citer.stages import paths
from citer.stages.folders import finetuned_pair
from citer.storage.tables import replacing, write_json

RESULTS = Path("benchmarks/results")
RULES = (Rule("risk", 0.95, 0.1), Rule("risk", 0.4, 1))
SLOTS = (8, 32)


class Joining(Engine):
    """An engine for `risk` rules, in which sequences with pending tokens join each visit."""

    def step(self) -> list[Event]:
        drafting, visiting = self._waiting[Need.SLM], self._waiting[Need.LLM]
        if llm_runs(len(visiting), len(drafting), self.delayed):
            for sequence in [sequence for sequence in drafting if _joins(sequence)]:
                drafting.remove(sequence)
                visiting.append(sequence)
        return super().step()


def _joins(sequence: Sequence) -> bool:
    """Make a visit due if tokens are pending. Return whether they are."""
    [path] = sequence._paths
    if sequence.length <= path.pending_from:
        return False
    path.risk, sequence._unchecked = 0.0, True
    need, _ = sequence.go_on()
    return need is Need.LLM


def study(params: Params, pair: Pair, problems: list[Problem]) -> Iterator[Row]:
    """Yield a row for each rule, batch size and engine."""
    last = max(map(int, params.iterations))
    router, _ = read_bundle(paths.router(last))
    for slots in SLOTS:
        alone = _engine(Engine, params, pair, slots)
        whole = dict(_answers(alone, problems, LLM_ALONE))
        for rule in RULES:
            head = head_for(router, rule)
            for kind in (Engine, Joining):
                engine = _engine(kind, params, pair, slots)
                answers = list(_answers(engine, problems, Policy(ScoredBy(head), rule)))
                where = {"rule": str(rule), "batch": slots, "joining": kind is Joining}
                yield where | _measured(answers, whole) | _costs(engine, alone, head)


def _engine(kind: type[Engine], params: Params, pair: Pair, slots: int) -> Engine:
    return kind(pair, slots, params.evaluate.max_new_tokens, delayed=True)


def _answers(
    engine: Engine, problems: list[Problem], policy: Policy
) -> Iterator[tuple[Problem, str]]:
    by_id = {problem.problem_id: problem for problem in problems}
    requests = [request(problem, engine.pair) for problem in problems]
    for answer in engine.decode(requests, policy):
        yield by_id[answer.key], engine.pair.text(answer.token_ids)


def _measured(answers: list[tuple[Problem, str]], whole: dict[Problem, str]) -> Row:
    right = sum(assess(problem, text).correct for problem, text in answers)
    same = sum(text == whole[problem] for problem, text in answers)
    return {"accuracy": right / len(answers), "the LLM's answers": same / len(answers)}


def _costs(engine: Engine, alone: Engine, head: Head) -> Row:
    def cost(prices: Prices) -> float:
        moved, whole = (prices.moved(each.slm_work, each.llm_work) for each in (engine, alone))
        return moved / whole

    prices = {"embedded": Prices.of(engine.pair, head.weight_bytes), **sized()}
    forwards = {"SLM forwards": engine.slm_work.forwards, "LLM forwards": engine.llm_work.forwards}
    return forwards | {name: cost(each) for name, each in prices.items()}


def write(rows: list[Row], file: TextIO) -> None:
    table = Table(*rows[0], box=box.MARKDOWN)
    for row in rows:
        table.add_row(*(f"{v:.3f}" if type(v) is float else str(v) for v in row.values()))
    Console(file=file, width=200).print(table)


def main() -> None:
    params = load_params()
    pair = load_pair(finetuned_pair(params), params.pair)
    rows = list(study(params, pair, read_problems(paths.referenced("test"))))
    write_json(RESULTS / "joining.json", rows)
    with replacing(RESULTS / "joining.md") as aside, aside.open("w") as file:
        write(rows, file)
    print((RESULTS / "joining.md").read_text())


if __name__ == "__main__":
    main()
