"""Cost by batch size, and which method reaches an accuracy at the least cost."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from citer.evaluation.methods import Kind, Row, label
from citer.evaluation.metrics import fraction_for
from citer.report.page.chart import TOP, Axis, Chart, x_axis
from citer.report.page.words import percent
from citer.report.series import OURS

COST = re.compile(r"cost_b(\d+)(?:_(\w+))?")
SHARES = (0.9, 0.95, 0.99, 1.0)  # of the LLM's accuracy
ROW = 22  # pixels for each method
FOOT = 40  # below the last row: the axis
NAMES = 138  # pixels for the names


class Batch(NamedTuple):
    """A column of costs: the batch size, and its schedule if it is not the plain one."""

    column: str
    size: int
    schedule: str

    def __str__(self) -> str:
        return f"batch {self.size}" + (f", {self.schedule}" if self.schedule else "")


def batches_of(row: Row) -> list[Batch]:
    """Return the costs that a row of the POINT table has, in the order of its columns."""
    matches = filter(None, map(COST.fullmatch, row))
    return [Batch(each[0], int(each[1]), each[2] or "") for each in matches]


def batch_chart(rows: Sequence[Row]) -> Chart:
    """Draw the cost of each standing at every batch size, the cheapest at batch 1 first."""
    rows = sorted(
        (row for row in rows if row["task"] == "all" and row["method"] != "llm"),
        key=lambda row: row["cost_b1"],
    )
    batches = batches_of(rows[0])
    highest = max(1.0, *(row[batch.column] for row in rows for batch in batches))
    height = TOP + ROW * len(rows) + FOOT
    x = x_axis("cost (LLM alone = 1)", 0.0, highest, 400, NAMES)
    names = [(number, _name(row)) for number, row in enumerate(rows)]
    y = Axis("", -0.5, len(rows) - 0.5, TOP, height - FOOT, named=names)
    chart = Chart(400, height, x, y, "cost of each method by batch size")
    for number, row in enumerate(rows):
        _draw(chart, number, row, batches)
    return chart


def _name(row: Row) -> str:
    """Name a method with its accuracy, without which its cost means nothing."""
    return f"{label(row['method'])}, {percent(row['accuracy'], 0)}"


def _draw(chart: Chart, number: int, row: Row, batches: Sequence[Batch]) -> None:
    costs = [row[batch.column] for batch in batches]
    look = "ours" if row["kind"] in OURS else "rival"
    chart.line([(min(costs), number), (max(costs), number)], f"span {look}")
    sizes = sorted({batch.size for batch in batches})
    for batch, cost in zip(batches, costs, strict=True):
        shade = f"size{min(2, sizes.index(batch.size))}" + (" ring" if batch.schedule else "")
        tip = f"{label(row['method'])}\n{batch}: cost {cost:.3f}"
        chart.dot(cost, number, f"batch {shade}", tip, radius=4.5)


class Cheapest(NamedTuple):
    """The least cost at which a method, and one of ours, reach a share of the LLM's accuracy."""

    method: str
    cost: float
    ours: tuple[str, float] | None

    @property
    def is_rival(self) -> bool:
        return self.ours is None or self.ours[1] > self.cost


def winners(points: Sequence[Row], task: str = "all") -> list[tuple[float, list[Cheapest | None]]]:
    """For each share of the LLM's accuracy, return the cheapest method of each batch.

    It is None where no method is cheaper than the LLM. A cost is read
    linearly between the efficient points of a method, as in the table of the summary. Both models
    alone take part.
    """
    mine = [point for point in points if point["task"] == task]
    return [
        (share, [_cheapest(mine, batch.column, share) for batch in batches_of(mine[0])])
        for share in SHARES
    ]


def _cheapest(points: Sequence[Row], column: str, share: float) -> Cheapest | None:
    (llm,) = (point for point in points if point["method"] == "llm")
    costs = {
        method: (cost, kind)
        for method, kind in {p["method"]: p["kind"] for p in points}.items()
        if kind not in (Kind.ALONE, Kind.BOUND)
        and (cost := _cost(points, method, column, share * llm["accuracy"])) is not None
    }
    best = min(costs, key=lambda method: costs[method][0], default=None)
    if best is None or costs[best][0] >= llm[column]:
        return None
    ours = {method: cost for method, (cost, kind) in costs.items() if kind in OURS}
    own = min(ours.items(), key=lambda item: item[1], default=None)
    return Cheapest(best, costs[best][0], own)


def _cost(points: Sequence[Row], method: str, column: str, accuracy: float) -> float | None:
    """Return the cost at which a method's efficient points reach an accuracy."""
    best: list[Row] = []
    own = (p for p in points if p["method"] in (method, "slm", "llm"))
    for point in sorted(own, key=lambda point: point[column]):
        if not best or point["accuracy"] > best[-1]["accuracy"]:
            best.append(point)
    return fraction_for(accuracy, [p[column] for p in best], [p["accuracy"] for p in best])
