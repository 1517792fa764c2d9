"""What the labels are worth: routers trained on them, five seeds, on the default run's questions.

    python -m benchmarks.labels        # after `citer run`

Writes `benchmarks/results/labels.{json,md}`. f95 is the LLM fraction for 95 % of the LLM's
accuracy, read between the points of thresholds that lie at the target fractions of each router's
holdout scores (entropy: of the SLM's own answers to the validation questions). An interval is of
a bootstrap over test questions, the same resamples for all methods and seeds; means over seeds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.paired import Outcomes, interval, resamples
from citer.config import Params, load_params
from citer.data.problems import Problem, read_problems
from citer.data.prompts import Encoded, encode_all
from citer.data.tokens import read_hidden, read_tokens
from citer.decoding.engine import Engine
from citer.decoding.policy import SLM_ALONE, Policy, routed
from citer.evaluation.rivals import certainty
from citer.evaluation.study import quantiles
from citer.evaluation.sweep import Method, sweep
from citer.io import replacing, write_json
from citer.labelling.rollout import Labeller
from citer.models.pair import Pair, load_pair
from citer.progress import progress
from citer.stages import paths
from citer.training import Trained, train_router

SEEDS = range(17, 22)
FRACTIONS = (0.01, 0.02, 0.03, 0.04, 0.05, 0.06, 0.07, 0.08, 0.1, 0.12, 0.15, 0.2, 0.3, 0.5)
KEPT = 0.95  # of the LLM's accuracy
OURS = "router 2"
ONE_SIDED = {"contested → SLM": 1, "contested → LLM (CITER-S)": 0}
RESULTS = Path("benchmarks/results")


@dataclass(frozen=True)
class Workshop:
    """What routers are made from, and the questions that they are tested on."""

    params: Params
    pair: Pair
    preference: Mapping[str, Problem]
    validation: Sequence[Problem]
    test: Sequence[Problem]

    @cached_property
    def engine(self) -> Engine:
        return Engine(self.pair, self.params.evaluate.slots, self.params.evaluate.max_new_tokens)

    @cached_property
    def examples(self) -> dict[str, Encoded]:
        return encode_all(self.preference.values(), self.pair.tokenizer, self.pair.eos_id)

    @cached_property
    def tokens(self) -> pa.Table:
        return read_tokens(paths.SLM_TOKENS, paths.LLM_TOKENS, self.examples)

    def label(self, policy: Policy, iteration: int) -> pa.Table:
        """Preferences whose rollouts play `policy`."""
        tie = self.params.label.tie
        labeller = Labeller(self.preference, self.examples, self.engine, policy, tie, iteration)
        return labeller.label(self.tokens, lambda _: None)

    def train(self, labels: pa.Table, label_N: np.ndarray, seed: int) -> Trained:
        return train_router(
            read_hidden(paths.SLM_TOKENS, labels),
            label_N,
            labels["problem_id"].to_numpy(),
            self.params.train.model_copy(update={"seed": seed}),
            self.pair.slm.device,
        )

    def answer(self, method: Method, thresholds: Sequence[float]) -> Outcomes:
        return Outcomes.of(sweep(self.engine, self.test, method, [0.0, *thresholds, 1.0]))

    def answer_routed(self, name: str, trained: Trained) -> Outcomes:
        known = [float(fraction) for fraction in trained.thresholds]
        taus = np.interp(FRACTIONS, known, list(trained.thresholds.values()))
        score = trained.router.score
        return self.answer(Method(name, lambda view: score(view.hidden_NH)), taus.tolist())

    def answer_by_entropy(self) -> Outcomes:
        method = Method("entropy", certainty)
        [alone] = sweep(self.engine, self.validation, method, [0.0])
        scores = [score for result in alone.results for score in result.scores]
        return self.answer(method, quantiles(scores, FRACTIONS))


class Study(NamedTuple):
    """Outcomes of each method, one a seed; labels of iterations 1 and 2, by the router's name."""

    outcomes: dict[str, list[Outcomes]]
    labels: dict[str, pa.Table]


def study(shop: Workshop) -> Study:
    """CITER's two routers, its labels with all contested tokens left to one model, and entropy."""
    first = shop.label(SLM_ALONE, 1)
    truth_N = first["label"].to_numpy()
    contested_N = first["case"].to_numpy() == "contested"
    found = Study({"entropy": [shop.answer_by_entropy()]}, {"router 1": first})
    with progress("labels", len(SEEDS), "seeds") as advance:
        for seed in SEEDS:
            routers = {"router 1": shop.train(first, truth_N, seed)}
            second = shop.label(routed(routers["router 1"].router, shop.params.label.tau), 2)
            routers[OURS] = shop.train(second, second["label"].to_numpy(), seed)
            for name, label in ONE_SIDED.items():
                routers[name] = shop.train(first, np.where(contested_N, label, truth_N), seed)
            for name, trained in routers.items():
                found.outcomes.setdefault(name, []).append(shop.answer_routed(name, trained))
            found.labels.setdefault(OURS, second)
            advance(1)
    return found


def summary(found: Study, shop: Workshop, task: str) -> dict[str, Any]:
    """f95 of each method and how far it is above ours; what became of contested tokens."""
    mine_Q = np.array([problem.task == task for problem in shop.test])
    drawn_RQ = resamples(mine_Q)
    f95 = {
        name: np.mean([outcome.fraction_for(KEPT, drawn_RQ) for outcome in seeds], axis=0)
        for name, seeds in found.outcomes.items()
    }
    slm, *_, llm = found.outcomes["entropy"][0].correct_TQ[:, mine_Q].mean(1).tolist()
    return {
        "accuracy": {"slm": slm, "llm": llm},
        "f95": {name: interval(f95_R) for name, f95_R in f95.items()},
        "f95 above ours": {
            name: interval(f95_R - f95[OURS]) for name, f95_R in f95.items() if name != OURS
        },
        "contested": {name: _contested(table, shop, task) for name, table in found.labels.items()},
    }


def _contested(labels: pa.Table, shop: Workshop, task: str) -> dict[str, float]:
    """Shares of a task's contested tokens by how their rollouts ended."""
    rows = labels.filter(pa.compute.equal(labels["case"], "contested")).to_pylist()
    ends = [
        (row["slm_branch_correct"], row["llm_branch_correct"])
        for row in rows
        if shop.preference[row["problem_id"]].task == task
    ]
    fatal, doomed = (sum(end == kind for end in ends) for kind in ((False, True), (False, False)))
    return {"tokens": len(ends), "fatal": fatal / len(ends), "both wrong": doomed / len(ends)}


def as_table(results: Mapping[str, dict[str, Any]]) -> Table:
    table = Table(box=box.MARKDOWN)
    for heading in ("task", "method", "f95", f"above {OURS}'s"):
        table.add_column(heading)
    for task, result in results.items():
        for name, f95 in result["f95"].items():
            above = result["f95 above ours"].get(name)
            table.add_row(task, name, _shown(f95), _shown(above, "+") if above else "")
    return table


def _shown(value: tuple[float, float, float], sign: str = "") -> str:
    mean, low, high = (f"{number:{sign}.4f}" for number in value)
    return f"{mean} [{low}, {high}]"


def main() -> None:
    params = load_params()
    pair = load_pair(paths.SLM, Path(params.pair.llm), params.pair)
    splits = [read_problems(paths.problems(n)) for n in ("preference", "validation", "test")]
    shop = Workshop(params, pair, {p.problem_id: p for p in splits[0]}, *splits[1:])
    found = study(shop)
    results = {task: summary(found, shop, task) for task in sorted({p.task for p in shop.test})}
    write_json(RESULTS / "labels.json", results)
    with replacing(RESULTS / "labels.md") as aside, aside.open("w") as file:
        Console(file=file, width=120).print(as_table(results))
    Console().print(as_table(results))


if __name__ == "__main__":
    main()
