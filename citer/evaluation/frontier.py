"""The frontier as a picture: accuracy against cost and against the LLM fraction."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from citer.evaluation.points import Row
from citer.evaluation.report import Chosen, frontier, label

# Okabe and Ito's palette: told apart by colour-blind readers, and by the markers in print.
RIVALS = {"entropy": ("#009E73", "^"), "random": ("#666666", "x")}
ROUTERS = (("#0072B2", "o"), ("#D55E00", "s"), ("#CC79A7", "D"), ("#E69F00", "v"))
AXES = {"cost_b1": "cost: bytes moved at batch 1, LLM alone = 1", "llm_fraction": "LLM fraction"}


class _Series(NamedTuple):
    method: str
    line: Sequence[Row]
    colour: str
    marker: str
    tau: float | None = None


def draw(points: Sequence[Row], chosen: Chosen, path: Path) -> None:
    """Write a PNG of the points on test; the same points give the same bytes."""
    figure = Figure(figsize=(11, 4.8), layout="constrained")
    panels = figure.subplots(1, len(AXES), sharey=True)
    for axes, (name, title) in zip(panels, AXES.items(), strict=True):
        for series in _all_series(points, chosen):
            _draw_series(axes, name, series)
        _draw_ends(axes, name, frontier(points, "llm"))
        axes.set_xlabel(title)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("accuracy on test")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    figure.savefig(path, format="png", dpi=150, metadata={"Software": None})


def _all_series(points: Sequence[Row], chosen: Chosen) -> Iterator[_Series]:
    for method, (colour, marker) in RIVALS.items():
        yield _Series(method, frontier(points, method), colour, marker)
    for index, (method, threshold) in enumerate(chosen.items()):
        colour, marker = ROUTERS[index % len(ROUTERS)]
        yield _Series(method, frontier(points, method), colour, marker, threshold.tau)


def _draw_series(axes: Axes, name: str, series: _Series) -> None:
    """A line through the method's points; a router's also shows its 95 % interval and its τ."""
    line, colour = series.line, series.colour
    x, y = [point[name] for point in line], [point["accuracy"] for point in line]
    axes.plot(x, y, color=colour, marker=series.marker, ms=4.5, label=label(series.method))
    if series.tau is None:
        return
    low, high = ([point[f"accuracy_{end}"] for point in line] for end in ("low", "high"))
    axes.fill_between(x, low, high, color=colour, alpha=0.12, linewidth=0)
    chosen = next(index for index, point in enumerate(line) if point["threshold"] == series.tau)
    axes.plot(
        x[chosen],
        y[chosen],
        marker="*",
        markersize=16,
        color=colour,
        markeredgecolor="black",
        linestyle="none",
        zorder=5,
        label=f"its chosen τ = {series.tau:.3g}",
    )


def _draw_ends(axes: Axes, name: str, ends: Sequence[Row]) -> None:
    for point, offset, align in zip(ends, ((10, -4), (4, 8)), ("left", "right"), strict=True):
        place = point[name], point["accuracy"]
        axes.plot(*place, marker="o", markersize=7, color="black", zorder=4)
        text = f"{label(point['method'])} alone"
        axes.annotate(text, place, offset, textcoords="offset points", ha=align)
