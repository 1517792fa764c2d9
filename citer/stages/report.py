"""Write data/summary, all methods and iterations side by side, and the report page."""

from collections.abc import Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import NamedTuple, Self

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
from citer.evaluation.measure import GREEDY, Conditions, Measure
from citer.evaluation.methods import ITERATIONS, Row, styles
from citer.evaluation.page.render import Champion, write_page
from citer.evaluation.page.study import PageStudy
from citer.evaluation.points import RIVALS_STAMP, ROUTER_STAMP, Findings, read_findings
from citer.evaluation.report import chosen_point, metrics, standings, standings_table, summary
from citer.io import read_as, replacing, table_metadata, write_json, write_text
from citer.stages import paths


def run(params: Params) -> None:
    """Write the table, the metrics, the points, the picture and the page.

    Raises InputError if a report is missing, or belongs to another study than the rivals.
    """
    found = _Found.read(params)
    points, chosen, conditions = found.points, found.chosen, found.conditions
    measure, failed = conditions.measure, found.failures
    rows, sizes, last = standings(points, chosen), params.evaluate.batches, found.reports[-1]
    comparison = compare([found.rivals.outcomes, last.findings.outcomes], last.chosen)
    whole = summary([r for r in rows if r["task"] == "all"], chosen, sizes, conditions, failed)
    against = against_table.summary(comparison, deployed(last.chosen), measure)
    by_task = _by_task([r for r in rows if r["task"] != "all"], comparison, sizes, measure)
    text = "\n".join([whole, "## Against the rivals", "", against, *by_task])
    with replacing(paths.SUMMARY) as aside:
        aside.mkdir()
        write_json(aside / "headline.json", headline(rows, last.chosen, comparison, sizes, measure))
        write_json(aside / "rivals.json", comparison.content(measure))
        write_json(
            aside / "metrics.json",
            metrics(rows, chosen, measure)
            | {"train": _training(params)}
            | _sampled(conditions)
            | _failed(failed),
        )
        write_text(aside / "table.md", text)
        csv.write_csv(pa.Table.from_pylist([*map(measure.keys, points)]), aside / "points.csv")
        draw(points, chosen, aside / "frontier.png", measure)
    write_report_page(params, paths.PAGE)
    Console().print(text, markup=False, highlight=False, soft_wrap=True)


def write_report_page(params: Params, path: Path, champion: Champion | None = None) -> None:
    """Write the page of the retraining in the current folder, beside the `champion` if known.

    Raises InputError as `run` does.
    """
    found = _Found.read(params)
    study = PageStudy(
        found.points,
        found.chosen,
        found.conditions,
        reports={k: paths.report(int(k)) for k in params.iterations},
        routers={k: paths.router(int(k)) for k in params.iterations},
        finetune=paths.FINETUNE,
    )
    write_page(path, study, champion)


def _by_task(
    rows: Sequence[Row], comparison: Comparison, sizes: Sequence[int], measure: Measure
) -> Iterator[str]:
    """Yield both tables for each task, if there are several."""
    tasks = {row["task"] for row in rows}
    if len(tasks) > 1:
        tables = standings_table(rows, sizes, measure), against_table.table(comparison, tasks)
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


class _Found(NamedTuple):
    """The findings of a retraining, in the current folder."""

    conditions: Conditions
    rivals: Findings
    reports: Sequence[_Report]

    @classmethod
    def read(cls, params: Params) -> Self:
        """Read all reports. Raises InputError if one is missing, or is not of the rivals' study."""
        stamp = table_metadata(paths.RIVALS / "points.parquet")
        rivals = read_findings(paths.RIVALS, params.evaluate, stamp | RIVALS_STAMP)
        return cls(Conditions.stored(stamp), rivals, [*_reports(params, stamp, rivals)])

    @property
    def points(self) -> list[Row]:
        own = (point for each in self.reports for point in each.findings.points)
        return [*self.rivals.points, *own]

    @property
    def chosen(self) -> Chosen:
        return {name: rule for each in self.reports for name, rule in each.chosen.items()}

    @property
    def failures(self) -> list[Failures]:
        own = (failed for each in self.reports for failed in each.findings.failures)
        return merged([*self.rivals.failures, *own])


def _reports(params: Params, stamp: Row, rivals: Findings) -> Iterator[_Report]:
    """Read the report of each iteration, and check that each chosen rule has a point."""
    for iteration, look in zip(params.iterations, cycle(ITERATIONS), strict=False):
        folder = paths.report(int(iteration))
        own = read_findings(folder, params.evaluate, stamp | ROUTER_STAMP)
        rules = read_as(folder / "chosen.json", dict[str, ChosenRule])
        _check_rules([*rivals.points, *own.points], own.points, rules, folder / "chosen.json")
        chosen = {f"{name}_{iteration}": rule for name, rule in rules.items()}
        yield _Report(own.numbered(iteration, *look), chosen)


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
