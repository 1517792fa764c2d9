"""Write data/summary, all methods and iterations side by side, and the report page."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import cycle
from typing import NamedTuple, Self

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from citer.config.params import Params
from citer.data.tasks import task_label
from citer.data.tasks.grading import Failures
from citer.evaluation.choice import Chosen, ChosenRule, deployed
from citer.evaluation.cost import counted
from citer.evaluation.measure import GREEDY, Conditions
from citer.evaluation.methods import ITERATIONS, Kind, Row, label, numbered, styles
from citer.evaluation.points import RIVALS_STAMP, ROUTER_STAMP, Findings, read_findings
from citer.progress import say
from citer.report.charts import png
from citer.report.frontier import picture
from citer.report.page import PageStudy, write_page
from citer.report.standings import metrics, standings, standings_table, summary
from citer.report.worth import content, headline, worth, worth_summary, worth_table
from citer.stages import paths
from citer.storage.tables import read_as, replacing, table_metadata, write_json, write_text


def run(params: Params) -> None:
    """Write the table, the metrics, the points, the picture and the page.

    Raises InputError if a report is missing, or belongs to another study than the rivals.
    """
    found = _Found.read(params)
    measure, sizes = found.conditions.measure, params.evaluate.batches
    rows, others = standings(found.points, found.chosen), found.others()
    text = "\n".join([*_sections(found, rows, others, sizes), ""])
    with replacing(paths.SUMMARY) as aside:
        write_json(aside / "headline.json", headline(rows, found.last, others, sizes, measure))
        write_json(aside / "worth.json", content(others, measure))
        own = {"train": _training(params), **_exceptions(found)}
        write_json(aside / "metrics.json", metrics(rows, found.chosen, measure) | own)
        write_text(aside / "table.md", text)
        points = pa.Table.from_pylist([*map(measure.keys, found.points)])
        csv.write_csv(points, aside / "points.csv")
        drawn = picture(found.points, found.chosen, measure)
        write_text(aside / "frontier.svg", drawn)
        (aside / "frontier.png").write_bytes(png(drawn))
    _write_page(found, others, params)
    say(text)


def _write_page(found: "_Found", others: Sequence[Row], params: Params) -> None:
    study = PageStudy(
        found.points,
        found.chosen,
        found.conditions,
        counted(params.evaluate, params.serve),
        others,
        tokens={k: paths.transcript(int(k)) for k in params.iterations},
        holdout=paths.router(len(params.iterations)) / paths.HOLDOUT,
    )
    write_page(paths.PAGE, study)


def _sections(
    found: "_Found", rows: Sequence[Row], others: Sequence[Row], sizes: Sequence[int]
) -> Iterator[str]:
    """Yield the parts of the text. Tables of single tasks come last, if there are several tasks."""
    measure, by_task = found.conditions.measure, [row for row in rows if row["task"] != "all"]
    whole = [row for row in rows if row["task"] == "all"]
    yield summary(whole, found.chosen, sizes, found.conditions, found.failures)
    method = deployed(found.last)
    named = f"`{found.last[method].rule:.4g}` ({label(method)})"
    yield f"## What each part is worth\n\nDeployed: {named}.\n"
    yield worth_summary(others, measure)
    if len(tasks := sorted({row["task"] for row in by_task})) > 1:
        yield f"## By task\n\n{standings_table(by_task, sizes, measure)}\n"
        for task in tasks:
            yield f"### {task_label(task)}\n\n{worth_table(others, task)}\n"


def _training(params: Params) -> Row:
    routers = {"agree": paths.COMMON} | {k: paths.router(int(k)) for k in params.iterations}
    files = {name: folder / "metrics.json" for name, folder in routers.items()}
    return {name: read_as(file, dict[str, float]) for name, file in files.items()}


def _exceptions(found: "_Found") -> Row:
    sampling = found.conditions.sampling
    counts = {task_label(each.task): each.answers for each in found.failures}
    sampled = {} if sampling == GREEDY else {"sampling": sampling}
    return sampled | ({"failed_grades": counts} if counts else {})


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
        batches = counted(params.evaluate, params.serve)
        rivals = read_findings(paths.RIVALS, batches, stamp | RIVALS_STAMP)
        reports = []
        for iteration, look in zip(params.iterations, cycle(ITERATIONS), strict=False):
            folder = paths.report(int(iteration))
            own = read_findings(folder, batches, stamp | ROUTER_STAMP)
            rules = read_as(folder / "chosen.json", dict[str, ChosenRule])
            chosen = {numbered(name, iteration): rule for name, rule in rules.items()}
            reports.append(_Report(own.of_iteration(iteration, *look), chosen))
        return cls(Conditions.stored(stamp), rivals, reports)

    @property
    def points(self) -> list[Row]:
        """The points on test. Those of methods that all iterations share are the last router's."""
        fixed = (row for row in self.rivals.on_test if row["kind"] in (Kind.ALONE, Kind.BOUND))
        last = self.reports[-1].findings
        own = (
            row
            for each in self.reports
            for row in each.findings.on_test
            if each.findings is last or row["method"] not in self.last
        )
        return [*fixed, *own]

    @property
    def chosen(self) -> Chosen:
        """The rules of all routers. Only the last one's is deployed."""
        rules = {name: rule for each in self.reports for name, rule in each.chosen.items()}
        return {name: replace(rule, deployed=False) for name, rule in rules.items()} | {**self.last}

    @property
    def failures(self) -> list[Failures]:
        """Count each answer once: the reports repeat those by the rivals' scorers."""
        own = ~pc.field("by").isin(self.rivals.outcomes["by"].unique())
        tables = [each.findings.outcomes.filter(own) for each in self.reports]
        return Findings(pa.concat_tables([self.rivals.outcomes, *tables]), []).failures

    @property
    def last(self) -> Chosen:
        """The rules of the last router."""
        return self.reports[-1].chosen

    def others(self) -> list[Row]:
        """Compare the deployed rule of the last router with all others."""
        last = self.reports[-1].findings
        alone = self.rivals.where(lambda row: row["kind"] in (Kind.ALONE, Kind.BOUND))
        methods = styles([*alone.on_test, *last.on_test])
        method = deployed(self.last)
        return worth([alone.outcomes, last.outcomes], methods, method, self.last[method].rule)
