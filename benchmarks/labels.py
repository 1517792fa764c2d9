"""Measure labels by the routers trained on them, with five seeds, on the last run's questions.

    python -m benchmarks.labels        # after `citer run`

Writes `benchmarks/results/labels.{json,md}`: f95 (`benchmarks.fractions`) under CITER's rules.
Thresholds lie at the target fractions of each router's holdout scores. For entropy they lie at
those fractions of the scores in the SLM's answers to the validation questions.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from rich.console import Console

from benchmarks.fractions import Answered, as_table, compared, note
from benchmarks.workshop import CITER, SEEDS, Workshop, thresholds
from citer.evaluation.rivals import by_score, low_entropy
from citer.evaluation.sweep import Method, by_head
from citer.progress import progress
from citer.storage.tables import replacing, write_json
from citer.training.router import Trained

OURS = "router 2"
ONE_SIDED = {"contested → SLM": 1, "contested → LLM (CITER-S)": 0}
RESULTS = Path("benchmarks/results")


class Study(NamedTuple):
    """Outcomes by method, one for each seed; labels of iterations 1 and 2, by router."""

    outcomes: Answered
    labels: dict[str, pa.Table]


def study(shop: Workshop) -> Study:
    """Measure CITER's two routers, two that give contested tokens to one model, and entropy."""
    entropy = {"entropy": by_score(shop.answer_thresholds())}
    studied = Study({}, {"router 1": shop.first_labels})
    note(studied.outcomes, shop.answer(Method("entropy", low_entropy), entropy))
    with progress("labels", len(SEEDS), "seeds") as advance:
        for seed in SEEDS:
            routers, second = _routers(shop, seed)
            for name, trained in routers.items():
                rules = {name: by_score(thresholds(trained))}
                note(studied.outcomes, shop.answer(by_head(name, trained.head), rules))
            studied.labels.setdefault(OURS, second)
            advance(1)
    return studied


def _routers(shop: Workshop, seed: int) -> tuple[dict[str, Trained], pa.Table]:
    """Train the routers to compare, by name; return them with the labels of the second."""
    first = shop.first_labels
    truth_N = first["label"].to_numpy()
    contested_N = first["case"].to_numpy() == "contested"
    routers = {"router 1": shop.train_on(first, seed)}
    second = shop.second_labels(routers["router 1"].head, CITER)
    routers[OURS] = shop.train_on(second, seed)
    for name, label in ONE_SIDED.items():
        routers[name] = shop.train(first, np.where(contested_N, label, truth_N), seed)
    return routers, second


def summary(studied: Study, shop: Workshop, task: str) -> dict[str, Any]:
    """Compute f95 of each method, its gap to ours, and how contested tokens ended."""
    in_task_Q = shop.tasks[task]
    return compared(studied.outcomes, in_task_Q, OURS) | {
        "accuracy": shop.accuracies(in_task_Q),
        "contested": {
            name: _contested(table, shop, task) for name, table in studied.labels.items()
        },
    }


def _contested(labels: pa.Table, shop: Workshop, task: str) -> dict[str, float]:
    """Compute how many contested tokens of a task there are, and how their rollouts ended."""
    rows = labels.filter(pa.compute.equal(labels["case"], "contested")).to_pylist()
    ends = [
        (row["slm_branch_correct"], row["llm_branch_correct"])
        for row in rows
        if shop.preference[row["problem_id"]].task == task
    ]
    fatal, doomed = (sum(end == kind for end in ends) for kind in ((False, True), (False, False)))
    return {"tokens": len(ends), "fatal": fatal / len(ends), "both wrong": doomed / len(ends)}


def main() -> None:
    shop = Workshop.open()
    studied = study(shop)
    results = {task: summary(studied, shop, task) for task in shop.tasks}
    write_json(RESULTS / "labels.json", results)
    with replacing(RESULTS / "labels.md") as aside, aside.open("w") as file:
        Console(file=file, width=120).print(as_table(results, OURS))
    Console().print(as_table(results, OURS))


if __name__ == "__main__":
    main()
