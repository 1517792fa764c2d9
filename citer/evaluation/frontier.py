"""The frontier as a picture: accuracy against cost, and the same where it nears the LLM's."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from citer.evaluation.points import Row
from citer.evaluation.report import (
    AUDITED,
    ENDS,
    SPECULATIVE,
    chosen_point,
    efficient,
    frontier,
    label,
)
from citer.evaluation.threshold import Chosen
from citer.rule import Rule

# Okabe and Ito's palette: told apart by colour-blind readers, and by the markers in print.
RIVALS = {"speculative": ("#E69F00", "v"), "entropy": ("#009E73", "^"), "random": ("#666666", "x")}
ROUTERS = (("#0072B2", "o"), ("#D55E00", "s"), ("#CC79A7", "D"), ("#56B4E9", "P"))
TITLE = "cost: bytes moved at batch 1, LLM alone = 1"
NEAR = 0.9  # of the LLM's accuracy: where the right panel begins


class _Series(NamedTuple):
    method: str
    line: Sequence[Row]
    colour: str
    marker: str
    chosen: tuple[Rule, Row] | None = None


def draw(points: Sequence[Row], chosen: Chosen, path: Path) -> None:
    """Write a PNG of the points on test; the same points give the same bytes."""
    slm, *_, llm = frontier(points, "llm")
    figure = Figure(figsize=(12, 5.2), layout="constrained")
    whole, near = figure.subplots(1, 2)
    for axes in (whole, near):
        for series in _all_series(points, chosen):
            _draw_series(axes, series)
        axes.set_xlabel(TITLE)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    _draw_ends(whole, (slm, llm))
    _draw_near(near, points, chosen, llm)
    whole.set_ylabel("accuracy on test")
    handles, labels = whole.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(path, format="png", dpi=150, metadata={"Software": None})


def _all_series(points: Sequence[Row], chosen: Chosen) -> Iterator[_Series]:
    """Rivals, then CITER and audited routing; one colour for each router's."""
    for method, (colour, marker) in RIVALS.items():
        yield _Series(method, _line(points, method), colour, marker)
    colours: dict[str, tuple[str, str]] = {}
    for method, threshold in chosen.items():
        iteration = method.rpartition("_")[2] if "_" in method else ""
        colour, marker = colours.setdefault(iteration, ROUTERS[len(colours) % len(ROUTERS)])
        place = threshold.rule, chosen_point(points, method, threshold.rule)
        yield _Series(method, _line(points, method), colour, marker, place)


def _line(points: Sequence[Row], method: str) -> list[Row]:
    """Speculative decoding ends in no model alone; of what is audited, the best for its cost."""
    if method == SPECULATIVE:
        own = (point for point in frontier(points, method) if point["method"] == method)
        return sorted(own, key=lambda point: point["threshold"])
    if method.startswith(AUDITED):
        return efficient(points, method)
    return frontier(points, method)


def _draw_series(axes: Axes, series: _Series) -> None:
    """A line through the method's points; a router's also shows its 95 % interval and its rule."""
    line, colour = series.line, series.colour
    x, y = [point["cost_b1"] for point in line], [point["accuracy"] for point in line]
    dashes = "--" if series.method.startswith(AUDITED) else "-"
    axes.plot(x, y, dashes, color=colour, marker=series.marker, ms=4.5, label=label(series.method))
    if series.chosen is None:
        return
    rule, place = series.chosen
    low, high = ([point[f"accuracy_{end}"] for point in line] for end in ("low", "high"))
    axes.fill_between(x, low, high, color=colour, alpha=0.1, linewidth=0)
    axes.plot(
        place["cost_b1"],
        place["accuracy"],
        marker="*",
        markersize=16,
        color=colour,
        markeredgecolor="black",
        linestyle="none",
        zorder=5,
        label=f"chosen: {rule:.3g}",
    )


def _draw_ends(axes: Axes, ends: Sequence[Row]) -> None:
    for point, offset, align in zip(ends, ((10, -4), (4, 8)), ("left", "right"), strict=True):
        place = point["cost_b1"], point["accuracy"]
        axes.plot(*place, marker="o", markersize=7, color="black", zorder=4)
        text = f"{label(point['method'])} alone"
        axes.annotate(text, place, offset, textcoords="offset points", ha=align)


def _draw_near(axes: Axes, points: Sequence[Row], chosen: Chosen, llm: Row) -> None:
    """Bring out where the LLM's accuracy is nearly kept."""
    axes.axhline(llm["accuracy"], color="black", linewidth=0.8, linestyle=":")
    near = [
        point["cost_b1"]
        for method in (*RIVALS, *chosen)
        for point in _line(points, method)
        if point["method"] not in ENDS and point["accuracy"] >= NEAR * llm["accuracy"]
    ]
    axes.set_ylim(NEAR * llm["accuracy"], min(1.0, llm["accuracy"] + 0.01))
    if near:
        axes.set_xlim(0.95 * min(near), min(1.0, 2.5 * min(near)))
    axes.set_title(f"the same, from {NEAR:.0%} of the LLM's accuracy on", fontsize=10)
