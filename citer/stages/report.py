"""Write data/summary, all methods and iterations side by side, and the report page."""

from collections.abc import Sequence
from itertools import cycle
from pathlib import Path

import pyarrow as pa
from pyarrow import csv
from rich.console import Console

from citer.config import Params
from citer.data.tasks import task_label
from citer.data.tasks.failures import Failures, merged
from citer.errors import InputError
from citer.evaluation.choice import Chosen, ChosenRule
from citer.evaluation.frontier import draw
from citer.evaluation.measure import GREEDY, Conditions
from citer.evaluation.methods import ITERATIONS, Row, numbered, styles
from citer.evaluation.page.render import Champion, write_page
from citer.evaluation.page.study import PageStudy
from citer.evaluation.points import RIVALS_STAMP, ROUTER_STAMP, read_findings
from citer.evaluation.report import chosen_point, metrics, standings, summary
from citer.io import read_as, replacing, table_metadata, write_json, write_text
from citer.stages import paths


def run(params: Params) -> None:
    """Write the table, the metrics, the points, the picture and the page.

    Raises InputError if a report is missing, or belongs to another study than the rivals.
    """
    stamp = table_metadata(paths.RIVALS / "points.parquet")
    conditions = Conditions.stored(stamp)
    measure = conditions.measure
    points, chosen, failed = _gather(params, stamp)
    rows = standings(points, chosen)
    text = summary(rows, chosen, params.evaluate.batches, conditions, failed)
    with replacing(paths.SUMMARY) as aside:
        aside.mkdir()
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
    stamp = table_metadata(paths.RIVALS / "points.parquet")
    points, chosen, _ = _gather(params, stamp)
    study = PageStudy(
        points,
        chosen,
        Conditions.stored(stamp),
        reports={k: paths.report(int(k)) for k in params.iterations},
        routers={k: paths.router(int(k)) for k in params.iterations},
        finetune=paths.FINETUNE,
    )
    write_page(path, study, champion)


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


def _gather(params: Params, stamp: Row) -> tuple[list[Row], Chosen, list[Failures]]:
    """Read the points of all methods, the chosen rules and the failures of graders.

    Add iterations to routers' names.
    """
    rivals = read_findings(paths.RIVALS, params.evaluate, stamp | RIVALS_STAMP)
    points, failed = rivals.points, rivals.failures
    chosen: dict[str, ChosenRule] = {}
    for iteration, look in zip(params.iterations, cycle(ITERATIONS), strict=False):
        folder = paths.report(int(iteration))
        findings = read_findings(folder, params.evaluate, stamp | ROUTER_STAMP)
        own, failed = findings.points, [*failed, *findings.failures]
        rules = read_as(folder / "chosen.json", dict[str, ChosenRule])
        _check_rules([*points, *own], own, rules, folder / "chosen.json")
        points += numbered(own, iteration, *look)
        chosen |= {f"{name}_{iteration}": rule for name, rule in rules.items()}
    return points, chosen, merged(failed)


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
