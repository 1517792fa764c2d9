"""Draw the frontier: accuracy, or fidelity, against cost; in full and close to the LLM's."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from citer.evaluation.choice import Chosen
from citer.evaluation.measure import Measure
from citer.evaluation.methods import MODELS, Kind, Row, label
from citer.evaluation.report import frontier
from citer.evaluation.series import NEAR, Series, all_series

TITLE = "cost: bytes moved at batch 1, LLM alone = 1"


def draw(points: Sequence[Row], chosen: Chosen, path: Path, measure: Measure) -> None:
    """Write a PNG with every method in `points`, which were measured on test.

    The same points give the same bytes.
    """
    drawn = list(all_series(points, chosen))
    figure = Figure(figsize=(12, 5.2), layout="constrained")
    whole, near = figure.subplots(1, 2)
    for axes in (whole, near):
        for series in drawn:
            _draw_series(axes, series)
        axes.set_xlabel(TITLE)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    _draw_alone(whole, points)
    _draw_near(near, drawn, frontier(points, "llm")[-1])
    near.set_title(f"the same, from {NEAR:.0%} of the LLM's {measure.name} on", fontsize=10)
    whole.set_ylabel(f"{measure.name} on test")
    handles, labels = whole.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(path, format="png", dpi=150, metadata={"Software": None})


def _draw_series(axes: Axes, series: Series) -> None:
    """Draw the method's line. If it has a chosen rule, add a star and the 95 % intervals."""
    line, (kind, colour, marker) = series.line, series.style
    x, y = [point["cost_b1"] for point in line], [point["accuracy"] for point in line]
    dashes = "--" if kind is Kind.AUDITED else "-"
    axes.plot(x, y, dashes, color=colour, marker=marker, ms=4.5, label=label(series.method))
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


def _draw_alone(axes: Axes, points: Sequence[Row]) -> None:
    """Draw each model alone as a dot with its name. The legend leaves it out."""
    for point in points:
        if point["kind"] != Kind.ALONE or point["task"] != "all":
            continue
        place = point["cost_b1"], point["accuracy"]
        axes.plot(*place, marker=point["marker"], markersize=7, color=point["colour"], zorder=4)
        is_llm = point["method"] == "llm"  # in the upper right corner: the name goes to its left
        offset, align = ((4, 8), "right") if is_llm else ((10, -4), "left")
        text = f"{label(point['method'])} alone"
        axes.annotate(text, place, offset, textcoords="offset points", ha=align)


def _draw_near(axes: Axes, drawn: Sequence[Series], llm: Row) -> None:
    """Limit the axes to points close to the LLM's accuracy."""
    axes.axhline(llm["accuracy"], color="black", linewidth=0.8, linestyle=":")
    near = [
        point["cost_b1"]
        for series in drawn
        for point in series.line
        if point["method"] not in MODELS and point["accuracy"] >= NEAR * llm["accuracy"]
    ]
    axes.set_ylim(NEAR * llm["accuracy"], min(1.0, llm["accuracy"] + 0.01))
    if near:
        axes.set_xlim(0.95 * min(near), min(1.0, 2.5 * min(near)))
