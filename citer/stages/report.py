"""Iterations side by side: data/summary."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
from pyarrow import csv
from rich.console import Console

from citer.config import Params
from citer.errors import InputError
from citer.evaluation.frontier import draw
from citer.evaluation.points import RIVALS, ROUTER, Row, read_findings
from citer.evaluation.report import chosen_point, metrics, standings, summary
from citer.evaluation.threshold import Chosen, Threshold
from citer.io import read_as, replacing, table_metadata, write_json, write_text
from citer.stages import paths


def run(params: Params) -> None:
    """Raises InputError where a report is missing or of another study than the rivals'."""
    points, chosen = _gather(params)
    rows = standings(points, chosen)
    text = summary(rows, chosen, params.evaluate.batches)
    with replacing(paths.SUMMARY) as aside:
        aside.mkdir()
        write_json(aside / "metrics.json", metrics(rows, chosen) | {"train": _training(params)})
        write_text(aside / "table.md", text)
        csv.write_csv(pa.Table.from_pylist(points), aside / "points.csv")
        draw(points, chosen, aside / "frontier.png")
    Console().print(text, markup=False, highlight=False, soft_wrap=True)


def _training(params: Params) -> Row:
    """How the training of every head went, by its router."""
    routers = {"agree": paths.AGREE} | {k: paths.router(int(k)) for k in params.iterations}
    files = {name: folder / "metrics.json" for name, folder in routers.items()}
    return {name: read_as(file, dict[str, float]) for name, file in files.items()}


def _gather(params: Params) -> tuple[list[Row], Chosen]:
    """The points of all methods, and their rules; a router's are named by its iteration."""
    stamp = table_metadata(paths.RIVALS / "points.parquet")
    points = read_findings(paths.RIVALS, params.evaluate, stamp | RIVALS).points
    chosen: dict[str, Threshold] = {}
    for iteration in params.iterations:
        folder = paths.report(int(iteration))
        own = read_findings(folder, params.evaluate, stamp | ROUTER).points
        points += [row | {"method": f"{row['method']}_{iteration}"} for row in own]
        rules = read_as(folder / "chosen.json", dict[str, Threshold])
        if "router" not in rules:
            raise InputError(f"{folder}/chosen.json: no rule of `router`, expected one")
        _check_points([*points, *own], rules, folder)
        chosen |= {f"{name}_{iteration}": found for name, found in rules.items()}
    return points, chosen


def _check_points(points: Sequence[Row], rules: Chosen, folder: Path) -> None:
    for method, threshold in rules.items():
        try:
            chosen_point(points, method, threshold.rule)
        except StopIteration:
            raise InputError(
                f"{folder}/chosen.json: {method}: no point by `{threshold.rule}` in points.parquet"
            ) from None
