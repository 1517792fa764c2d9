"""The frontier: accuracy, or fidelity, against cost at batch 1, in full and close to the LLM's."""

from collections.abc import Iterable, Sequence

import numpy as np

from citer.evaluation.choice import Chosen
from citer.evaluation.measure import Measure
from citer.evaluation.methods import MODELS, Kind, Row, label
from citer.report.names import Box, Name, place
from citer.report.page.chart import BOTTOM, LEFT, RIGHT, TOP, Axis, Chart, x_axis, y_axis
from citer.report.page.words import point_tip
from citer.report.series import NEAR, Series, all_series, by_importance, nearby

LETTER, LINE = 6.0, 12.0  # the size of a name in the charts, in pixels


def frontier_chart(
    points: Sequence[Row], chosen: Chosen, measure: Measure, size: tuple[int, int], *, near: bool
) -> Chart:
    """Draw every method with its intervals, or only what is `near` the LLM's accuracy."""
    drawn = all_series(points, chosen)
    alone = [p for p in points if p["kind"] == Kind.ALONE and p["task"] == "all"]
    chart = _plane(drawn, alone, measure, size, near=near)
    for series in drawn:
        _draw(chart, series, measure)
    if not near:
        for point in alone:
            chart.dot(point["cost_b1"], point["accuracy"], "model", point_tip(point, measure))
    for series in drawn:
        _draw_chosen(chart, series, measure)
    _write_names(chart, drawn, alone)
    return chart


def _plane(
    drawn: Sequence[Series],
    alone: Sequence[Row],
    measure: Measure,
    size: tuple[int, int],
    *,
    near: bool,
) -> Chart:
    width, height = size
    shown = [*alone, *(point for series in drawn for point in series.line)]
    low, high = min(p["cost_b1"] for p in shown), max(p["cost_b1"] for p in shown)
    floor, roof = min(p["accuracy"] for p in shown), max(p["accuracy"] for p in shown)
    if near:
        (llm,) = (point for point in alone if point["method"] == "llm")
        low, high = nearby(drawn, llm)
        floor = NEAR * llm["accuracy"]
    y = y_axis(measure.name, floor, min(1.0, roof + 0.01), height, percent=True)
    x = x_axis("cost at batch 1 (LLM alone = 1)", 0.95 * low, 1.05 * high, width, log=not near)
    return Chart(width, height, x, y, f"{measure.name} against cost of every method")


def _look(series: Series) -> str:
    return series.rank + " audited" * (series.style.kind is Kind.AUDITED)


def _draw(chart: Chart, series: Series, measure: Measure) -> None:
    look, colour = _look(series), series.style.colour
    line = [(point["cost_b1"], point["accuracy"]) for point in series.line]
    if series.rank == "ours":
        _draw_band(chart, series.line, colour)
    chart.line(line, f"line {look}", colour)
    for point in series.line:
        if _holds(chart, point) and point["method"] not in MODELS:
            place = point["cost_b1"], point["accuracy"]
            radius = 3.2 if series.rank == "ours" else 2.4
            chart.dot(*place, f"point {look}", point_tip(point, measure), colour, radius)


def _draw_band(chart: Chart, line: Sequence[Row], colour: str) -> None:
    upper = [(point["cost_b1"], point["accuracy_high"]) for point in line]
    lower = [(point["cost_b1"], point["accuracy_low"]) for point in reversed(line)]
    chart.line([*upper, *lower], "band", colour)


def _draw_chosen(chart: Chart, series: Series, measure: Measure) -> None:
    if not series.chosen or not _holds(chart, point := series.chosen[1]):
        return
    cost, colour = point["cost_b1"], series.style.colour
    chart.line([(cost, point["accuracy_low"]), (cost, point["accuracy_high"])], "whisker", colour)
    tip = "chosen: " + point_tip(point | {"method": series.method}, measure)
    chart.dot(cost, point["accuracy"], f"chosen {series.rank}", tip, colour, 5.5)


def _holds(chart: Chart, point: Row) -> bool:
    return chart.x.holds(point["cost_b1"]) and chart.y.holds(point["accuracy"])


def _write_names(chart: Chart, drawn: Sequence[Series], alone: Sequence[Row]) -> None:
    """Write each method's name beside its line, those of the last router first."""
    named = [(label(s.method), _look(s), s.style.colour, s.line) for s in by_importance(drawn)]
    named += [(f"{label(p['method'])} alone", "model", "", [p]) for p in alone]
    boxes = [
        Name(_pixels(line, chart.x, chart.y), LETTER * len(text) + 4, LINE)
        for text, _, _, line in named
    ]
    inside = Box(LEFT, TOP, chart.width - RIGHT, chart.height - BOTTOM)
    for (text, look, colour, _), centre in zip(named, place(boxes, inside), strict=True):
        if centre:
            chart.text(centre[0], centre[1] + 4, text, f"name {look}", colour, "middle")


def _pixels(line: Iterable[Row], x: Axis, y: Axis) -> np.ndarray:
    return np.array([(x.at(p["cost_b1"]), y.at(p["accuracy"])) for p in line], float)
