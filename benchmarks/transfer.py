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
import pyarrow as pa
import pyarrow.compute as pc
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.fractions import KEPT
from benchmarks.paired import shown
from benchmarks.workshop import SEEDS, Workshop, thresholds
from citer.data.holdout import held_out
from citer.data.tasks import task_label
from citer.evaluation.choice import cheapest
from citer.evaluation.evidence import choose_rules
from citer.evaluation.paired import Frontier, interval, resamples
from citer.evaluation.points import Findings, outcome_table, point_rows, rule_columns
from citer.evaluation.study import ALONE_LINES, Study
from citer.evaluation.sweep import sweep
from citer.models.router import Router
from citer.progress import progress
from citer.report.against import Answers, Resampled
from citer.rule import Rule
from citer.storage.tables import write_json, write_text
from citer.training.router import Trained

RESULTS = Path("benchmarks/results")
ALL = "all tasks"


@dataclass(frozen=True)
class Routed:
    """A router's answers to the test questions of all tasks, and the rule that it was given."""

    answers: Answers
    method: str
    rule: Rule

    @property
    def run(self) -> int:
        """The number of the rule's run."""
        return self.answers.run_of(self.method, rule_columns(self.rule))

    @property
    def llm(self) -> int:
        return self.answers.by_method["llm"][0]


Answered = Mapping[str, Sequence[Routed]]  # by the tasks of training, one for each seed


def trainings(shop: Workshop) -> dict[str, Workshop]:
    """Return a workshop for each task, and the one of all."""
    return {task: shop.only([task]) for task in shop.tasks} | {ALL: shop}


def study(shop: Workshop, seeds: Sequence[int]) -> Answered:
    """Train a router on each task and on all, for each seed, and answer the test questions."""
    shops, alone = trainings(shop), alone_on(shop)
    answered: dict[str, list[Routed]] = {name: [] for name in shops}
    with progress("transfer", len(seeds) * len(shops), "routers") as advance:
        for seed in seeds:
            for name, each in shops.items():
                answered[name].append(tested(each, seed, alone, shop.first_labels))
                advance(1)
    return answered


def alone_on(shop: Workshop) -> Findings:
    """Run both models alone on validation and test, once for all routers."""
    with TemporaryDirectory() as folder:
        runs = [
            run
            for problems in (shop.validation, shop.test)
            for [run] in sweep(
                shop.executor,
                shop.engine,
                problems,
                ALONE_LINES,
                Path(folder, problems[0].split),
            )
        ]
    return Findings(outcome_table(runs), point_rows(runs[2:], shop.params.evaluate))


def trained(shop: Workshop, seed: int, first_labels: pa.Table) -> tuple[Router, Trained]:
    """Train both heads in two iterations; return the router, and `stand` with its thresholds.

    `first_labels` are the labels of iteration 1 for all tasks.
    """
    own_N = pc.is_in(first_labels["problem_id"], pa.array(shop.preference, pa.string()))
    first = shop.train_on(first_labels.filter(own_N), seed)
    labels = shop.second_labels(first.head, shop.params.label.rule)
    stand = shop.train_on(labels, seed)
    return Router({"stand": stand.head, "agree": shop.train_agree(seed).head}), stand


def tested(shop: Workshop, seed: int, alone: Findings, first_labels: pa.Table) -> Routed:
    """Train a router, choose its rule on the workshop's validation questions, answer the test."""
    router, stand = trained(shop, seed, first_labels)
    params = shop.params.evaluate
    holdout = held_out(shop.preference.values(), seed, shop.params.train.holdout)
    with TemporaryDirectory() as folder:
        asked = Study(
            shop.executor,
            shop.pair,
            shop.validation,
            shop.test,
            params,
            Path(folder),
            holdout,
        )
        findings = asked.router(router, thresholds(stand), alone)
    measure, promised = asked.conditions.measure, (params.epsilon, params.delta)
    chosen, _ = choose_rules(findings, alone, measure, *promised)
    best = cheapest(*chosen.values())
    method = next(name for name, rule in chosen.items() if rule is best)
    answered = Answers.of(pa.concat_tables([alone.outcomes, findings.outcomes]))
    return Routed(answered, method, best.rule)


def matrix(answered: Answered, task: str, epsilon: float) -> dict[str, Any]:
    """Compute the figures of every router on the test questions of a task, and its gaps.

    A gap is a router's figure minus that of the router which was trained on this task.
    """
    in_task_Q = answered[task][0].answers.task_Q == task
    values = {
        name: _means([figures(each, in_task_Q) for each in seeds])
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
        | {"kept": _kept(answered[name], in_task_Q, epsilon)}
        for name, figures in values.items()
    }


def figures(routed: Routed, in_task_Q: np.ndarray) -> dict[str, np.ndarray]:
    """Compute the figures of a router in R resamples of some questions."""
    answers, run, llm = routed.answers, routed.run, routed.llm
    sums, drawn_RQ = Resampled.of(answers, in_task_Q), resamples(in_task_Q)
    enough_R = KEPT * sums.right_RV[:, llm]
    line = answers.line("router")
    fraction_RV = (drawn_RQ @ answers.llm_tokens_VQ.T) / (drawn_RQ @ answers.tokens_VQ.T)
    by_fraction = Frontier.of(fraction_RV[:, line], sums.right_RV[:, line])
    return {
        "f95": by_fraction.cost_for(enough_R),
        "c95": sums.frontiers["audited"].cost_for(enough_R) / sums.moved_RV[:, llm],
        "accuracy": sums.right_RV[:, run] / sums.questions,
        "cost": sums.moved_RV[:, run] / sums.moved_RV[:, llm],
        "risk": risk(answers.correct_VQ[run], answers.correct_VQ[llm], drawn_RQ),
    }


def risk(correct_Q: np.ndarray, llm_Q: np.ndarray, drawn_RQ: np.ndarray) -> np.ndarray:
    """Return P(routed wrong | LLM right) in each resample, 0 if the LLM is never right."""
    return drawn_RQ @ (llm_Q * (1 - correct_Q)) / np.maximum(drawn_RQ @ llm_Q, 1)


def _means(seeds: Sequence[Mapping[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.mean([figures[name] for figures in seeds], axis=0) for name in seeds[0]}


def _kept(seeds: Sequence[Routed], in_task_Q: np.ndarray, epsilon: float) -> dict[str, Any]:
    """Count the seeds whose risk is at most epsilon on the questions themselves."""
    right = (each.answers.correct_VQ[[each.run, each.llm]] for each in seeds)
    risks = [float(risk(own_Q, llm_Q, in_task_Q[None, :])[0]) for own_Q, llm_Q in right]
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
