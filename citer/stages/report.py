"""Write data/summary: all methods and iterations side by side."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, cycle
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from pyarrow import csv
from rich.console import Console

from citer.config import Params
from citer.data.tasks import task_label
from citer.data.tasks.failures import Failures, merged
from citer.errors import InputError
from citer.evaluation import against_table
from citer.evaluation.against import Comparison, compare
from citer.evaluation.choice import Chosen, ChosenRule
from citer.evaluation.frontier import draw
from citer.evaluation.headline import deployed, headline
from citer.evaluation.measure import GREEDY, Conditions
from citer.evaluation.methods import ITERATIONS, Row, styles
from citer.evaluation.points import RIVALS_STAMP, ROUTER_STAMP, Findings, read_findings
from citer.evaluation.report import chosen_point, metrics, standings, standings_table, summary
from citer.evaluation.spread import Seeded, spread_table, spreads
from citer.io import read_as, replacing, table_metadata, write_json, write_text
from citer.stages import paths


def run(params: Params) -> None:
    """Write the table, the metrics, the points and the picture.

    Raises InputError if a report is missing, or belongs to another study than the rivals.
    """
    read = _read(params)
    measure, sizes = read.conditions.measure, params.evaluate.batches
    rows, comparison = standings(read.points, read.chosen), compare(read.outcomes, read.last)
    text = "\n".join(_sections(read, rows, comparison, sizes))
    with replacing(paths.SUMMARY) as aside:
        aside.mkdir()
        write_json(aside / "headline.json", headline(rows, read.last, comparison, sizes, measure))
        write_json(aside / "rivals.json", comparison.content(measure))
        write_json(
            aside / "metrics.json",
            metrics(rows, read.chosen, measure)
            | {"train": _training(params)}
            | _sampled(read.conditions)
            | _failed(read.failed),
        )
        if read.seeds:
            write_json(aside / paths.SPREAD, [asdict(each) for each in spreads(read.seeds)])
        write_text(aside / "table.md", text)
        csv.write_csv(pa.Table.from_pylist([*map(measure.keys, read.points)]), aside / "points.csv")
        draw(read.points, read.chosen, aside / "frontier.png", measure)
    Console().print(text, markup=False, highlight=False, soft_wrap=True)


def _sections(
    read: "_Reports", rows: Sequence[Row], comparison: Comparison, sizes: Sequence[int]
) -> Iterator[str]:
    """Yield the parts of the text. Tables of single tasks come last, if there are several tasks."""
    measure, by_task = read.conditions.measure, [row for row in rows if row["task"] != "all"]
    whole = [row for row in rows if row["task"] == "all"]
    yield summary(whole, read.chosen, sizes, read.conditions, read.failed)
    against = against_table.summary(comparison, deployed(read.last), measure)
    yield f"## Against the rivals\n\n{against}"
    if read.seeds:
        yield f"## Seeds of training\n\n{spread_table(read.seeds, measure)}"
    if len(tasks := {row["task"] for row in by_task}) > 1:
        tables = standings_table(by_task, sizes, measure), against_table.table(comparison, tasks)
        yield "\n\n".join(["## By task", *tables, ""])


def _training(params: Params) -> Row:
    """Read the training metrics of every head, by router."""
    routers = {"agree": paths.AGREE} | {k: paths.router(int(k)) for k in params.iterations}
    files = {name: folder / "metrics.json" for name, folder in routers.items()}
    return {name: read_as(file, dict[str, float]) for name, file in files.items()}


def _sampled(conditions: Conditions) -> Row:
    """Return how the answers were sampled, if they were."""
    return {} if conditions.sampling == GREEDY else {"sampling": conditions.sampling}


def _failed(failed: Sequence[Failures]) -> Row:
    """Return how often each grader failed, if one did."""
    counts = {task_label(each.task): each.answers for each in failed}
    return {"failed_grades": counts} if counts else {}


class _Report(NamedTuple):
    """The report of a router. The names of its methods have its iteration."""

    findings: Findings
    chosen: Chosen
    seeds: list[Seeded]


@dataclass(frozen=True)
class _Reports:
    """The reports of the rivals and of all routers."""

    conditions: Conditions
    rivals: Findings
    routers: Sequence[_Report]

    @property
    def points(self) -> list[Row]:
        own = chain.from_iterable(each.findings.points for each in self.routers)
        return [*self.rivals.points, *own]

    @property
    def chosen(self) -> Chosen:
        return dict(chain.from_iterable(each.chosen.items() for each in self.routers))

    @property
    def failed(self) -> list[Failures]:
        own = chain.from_iterable(each.findings.failures for each in self.routers)
        return merged([*self.rivals.failures, *own])

    @property
    def seeds(self) -> list[Seeded]:
        return [*chain.from_iterable(each.seeds for each in self.routers)]

    @property
    def last(self) -> Chosen:
        """The rules of the last router."""
        return self.routers[-1].chosen

    @property
    def outcomes(self) -> list[pa.Table]:
        """Those of the rivals and of the last router."""
        return [each.outcomes for each in (self.rivals, self.routers[-1].findings)]


def _read(params: Params) -> _Reports:
    """Read all reports, and check that each chosen rule has a point."""
    stamp = table_metadata(paths.RIVALS / "points.parquet")
    rivals = read_findings(paths.RIVALS, params.evaluate, stamp | RIVALS_STAMP)
    routers = []
    for iteration, look in zip(params.iterations, cycle(ITERATIONS), strict=False):
        folder = paths.report(int(iteration))
        own = read_findings(folder, params.evaluate, stamp | ROUTER_STAMP)
        rules = read_as(folder / "chosen.json", dict[str, ChosenRule])
        _check_rules([*rivals.points, *own.points], own.points, rules, folder / "chosen.json")
        chosen = {f"{name}_{iteration}": rule for name, rule in rules.items()}
        routers.append(_Report(own.numbered(iteration, *look), chosen, _seeds(folder, iteration)))
    return _Reports(Conditions.stored(stamp), rivals, routers)


def _seeds(folder: Path, iteration: str) -> list[Seeded]:
    """Read the results of each seed. A report of a single seed has none."""
    path = folder / paths.SPREAD
    found = read_as(path, list[Seeded]) if path.exists() else []
    return [replace(each, method=f"{each.method}_{iteration}") for each in found]


def _check_rules(points: Sequence[Row], own: Sequence[Row], rules: Chosen, origin: Path) -> None:
    """Raise InputError if a method of a report has no chosen rule, or that rule has no point."""
    for method in styles(own) or ["router"]:
        if method not in rules:
            raise InputError(f"{origin}: no rule of `{method}`, expected one")
    for method, chosen in rules.items():
        try:
            chosen_point(points, method, chosen.rule)
        except StopIteration:
            raise InputError(
                f"{origin}: {method}: no point of rule `{chosen.rule}` in points.parquet"
            ) from None
