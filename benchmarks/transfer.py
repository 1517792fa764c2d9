"""Measure routers on a task that they were not trained on.

    python -m benchmarks.transfer        # after `citer run`

For each task, and for all together, a router learns from the labels of these tasks alone: two
iterations, `label.rule`, its own `agree` head. Validation questions of the same tasks choose its
rule. All routers then answer the test questions of every task. The SLM is that of the run, which
was finetuned on all tasks, so the study is about routers and not about models.

f95: the LLM fraction for 95 % of the LLM's accuracy under CITER's rules; c95: the cost at batch 1
for it under audited ones. `chosen` is the cheapest rule that keeps the promise on validation. Its
risk is P(routed wrong | LLM right), and `kept` counts the seeds whose risk is at most ε on the test
questions of the task. Means are over seeds; intervals are those of `benchmarks.fractions`. Writes
`benchmarks/results/transfer.{json,md}`.
"""

from collections.abc import Mapping, Sequence
from contextlib import chdir
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.fractions import KEPT
from benchmarks.paired import shown
from benchmarks.stored import Rows, accuracy, cost, risk
from benchmarks.workshop import SEEDS, Workshop, thresholds
from citer.data.tasks import task_label
from citer.evaluation.choice import cheapest
from citer.evaluation.paired import interval, resamples
from citer.evaluation.points import Findings, outcome_table, point_rows
from citer.evaluation.study import ALONE_LINES, Study
from citer.evaluation.sweep import sweep
from citer.io import write_json, write_text
from citer.models.router import Router
from citer.progress import progress
from citer.rule import Rule
from citer.training import Trained

RESULTS = Path("benchmarks/results")
ALL = "all tasks"


@dataclass(frozen=True)
class Answers:
    """A router's answers to the test questions of all tasks, and the rule that it was given."""

    rows: Rows
    method: str
    rule: Rule

    @property
    def chosen(self) -> Rows:
        return self.rows.rule(self.method, self.rule)


Answered = Mapping[str, Sequence[Answers]]  # by the tasks of training, one for each seed


def trainings(shop: Workshop) -> dict[str, Workshop]:
    """Return a workshop for each task, and the one of all."""
    return {task: shop.only([task]) for task in shop.tasks} | {ALL: shop}


def study(shop: Workshop, seeds: Sequence[int]) -> Answered:
    """Train a router on each task and on all, for each seed, and answer the test questions."""
    shops = trainings(shop)
    alone = {name: alone_on(each) for name, each in shops.items()}
    answered: dict[str, list[Answers]] = {name: [] for name in shops}
    with progress("transfer", len(seeds) * len(shops), "routers") as advance:
        for seed in seeds:
            for name, each in shops.items():
                answered[name].append(answers(each, *trained(each, seed), alone[name]))
                advance(1)
    return answered


def alone_on(shop: Workshop) -> Findings:
    """Run both models alone on the workshop's validation questions and on test."""
    with TemporaryDirectory() as folder:
        runs = [
            run
            for problems in (shop.validation, shop.test)
            for [run] in sweep(shop.engine, problems, ALONE_LINES, Path(folder, problems[0].split))
        ]
    return Findings(outcome_table(runs), point_rows(runs[2:], shop.params.evaluate))


def trained(shop: Workshop, seed: int) -> tuple[Router, Trained]:
    """Train both heads in two iterations; return the router, and `stand` with its thresholds."""
    first = shop.train_on(shop.first_labels, seed)
    labels = shop.second_labels(first.head, shop.params.label.rule)
    stand = shop.train_on(labels, seed)
    return Router({"stand": stand.head, "agree": shop.train_agree(seed).head}), stand


def answers(shop: Workshop, router: Router, stand: Trained, alone: Findings) -> Answers:
    """Choose the router's rule on the workshop's validation questions, and answer the test."""
    with TemporaryDirectory() as folder:
        asked = Study(shop.pair, shop.validation, shop.test, shop.params.evaluate, Path(folder))
        findings, chosen = asked.router(router, thresholds(stand), alone)
    best = cheapest(*chosen.values())
    method = next(name for name, rule in chosen.items() if rule is best)
    return Answers(Rows.of(alone.outcomes, findings.outcomes), method, best.rule)


def matrix(answered: Answered, task: str, epsilon: float) -> dict[str, Any]:
    """Compute the figures of every router on the test questions of a task, and its gaps.

    A gap is how far a router is above the one that was trained on this task.
    """
    drawn_RQ = resamples(answered[task][0].rows.in_task(task))
    values = {
        name: _means([_figures(each, drawn_RQ) for each in seeds])
        for name, seeds in answered.items()
    }
    return {
        name: {
            figure: {
                "mean": interval(value_R),
                "above own": interval(value_R - values[task][figure]) if name != task else None,
            }
            for figure, value_R in figures.items()
        }
        | {"kept": _kept(answered[name], drawn_RQ, epsilon)}
        for name, figures in values.items()
    }


def _figures(each: Answers, drawn_RQ: np.ndarray) -> dict[str, np.ndarray]:
    llm = each.rows.method("llm")
    return {
        "f95": each.rows.outcomes("router").fraction_for(KEPT, drawn_RQ),
        "c95": each.rows.outcomes("audited").cost_for(KEPT, drawn_RQ),
        "accuracy": accuracy(each.chosen, drawn_RQ),
        "cost": cost(each.chosen, llm, drawn_RQ),
        "risk": risk(each.chosen, llm, drawn_RQ),
    }


def _means(seeds: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.mean([figures[name] for figures in seeds], axis=0) for name in seeds[0]}


def _kept(seeds: Sequence[Answers], drawn_RQ: np.ndarray, epsilon: float) -> dict[str, Any]:
    """Count the seeds whose risk is at most epsilon on the questions themselves."""
    risks = [float(risk(s.chosen, s.rows.method("llm"), drawn_RQ[:1])[0]) for s in seeds]
    rules = [f"{each.method}: {each.rule:.4g}" for each in seeds]
    return {"seeds": sum(each <= epsilon for each in risks), "risks": risks, "rules": rules}


def as_table(results: Mapping[str, Mapping[str, Any]]) -> Table:
    """Format two lines per router and task: its figures, and how far they are above its own."""
    table = Table(box=box.MARKDOWN)
    figures = ("f95", "c95", "accuracy", "cost", "risk")
    for heading in ("tested on", "trained on", *figures, "promise kept"):
        table.add_column(heading)
    for task, routers in results.items():
        for name, row in routers.items():
            cells = (shown(row[figure]["mean"]) for figure in figures)
            kept = f"{row['kept']['seeds']} of {len(row['kept']['risks'])}"
            table.add_row(task_label(task), name, *cells, kept)
            if name != task:
                above = (shown(row[figure]["above own"], "+") for figure in figures)
                table.add_row("", "… above own", *above, "")
    return table


def main(
    project: Annotated[Path, typer.Option(help="Folder of a finished run.")] = Path(),
    results: Annotated[str, typer.Option(help="Name of the results.")] = "transfer",
    seeds: Annotated[int, typer.Option(help="Seeds of training.")] = len(SEEDS),
) -> None:
    target = (RESULTS / results).absolute()
    with chdir(project):
        shop = Workshop.open()
        answered = study(shop, SEEDS[:seeds])
    epsilon = shop.params.evaluate.epsilon
    by_task = {task: matrix(answered, task, epsilon) for task in shop.tasks}
    write_json(target.with_suffix(".json"), {"epsilon": epsilon, "tasks": by_task})
    text = StringIO()
    Console(file=text, width=220).print(as_table(by_task))
    write_text(target.with_suffix(".md"), text.getvalue())
    print(text.getvalue())


if __name__ == "__main__":
    typer.run(main)
