"""Draw the frontier: accuracy, or fidelity, against cost; in full and close to the LLM's."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FixedLocator, NullLocator
from matplotlib.transforms import IdentityTransform

from citer.evaluation.choice import Chosen
from citer.evaluation.measure import Measure
from citer.evaluation.methods import Kind, Row, label
from citer.report.names import Box, Name, place
from citer.report.series import NEAR, Series, all_series, by_importance, nearby

TITLE = "cost: bytes moved at batch 1, LLM alone = 1"
TICKS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.7, 1, 1.5, 2, 3)
DPI, LETTERS = 150, 8.5  # size of the names in points
LETTER, LINE = 0.58, 1.25  # width of a letter and height of a line, in sizes
GREY, GREYNESS = 0.55, 0.6  # rivals are drawn in their colour mixed with this much grey
WIDTHS = {"rival": 0.9, "earlier": 1.2, "ours": 2.4}


def draw(points: Sequence[Row], chosen: Chosen, path: Path, measure: Measure) -> None:
    """Write a PNG with every method in `points`, which were measured on test.

    Names stand beside the lines. The same points give the same bytes.
    """
    drawn = all_series(points, chosen)
    alone = [p for p in points if p["kind"] == Kind.ALONE and p["task"] == "all"]
    figure = Figure(figsize=(13, 5.6), layout="constrained", dpi=DPI)
    FigureCanvasAgg(figure)
    whole, near = figure.subplots(1, 2)
    for axes in (whole, near):
        for series in drawn:
            _draw_series(axes, series)
        axes.set_xlabel(TITLE)
    _finish_whole(whole, drawn, alone)
    _finish_near(near, drawn, next(point for point in alone if point["method"] == "llm"))
    near.set_title(f"the same, from {NEAR:.0%} of the LLM's {measure.name} on", fontsize=10)
    whole.set_ylabel(f"{measure.name} on test")
    figure.supxlabel(_stars(drawn), fontsize=8.5, color="#444444")
    figure.draw_without_rendering()  # decides where the axes are
    for axes, shown in ((whole, alone), (near, [])):
        _write_names(axes, drawn, shown)
    figure.savefig(path, format="png", dpi=DPI, metadata={"Software": None})


def _stars(drawn: Sequence[Series]) -> str:
    """Return the rules that the stars mark."""
    rules = [f"{label(each.method)} {each.chosen[0]:.3g}" for each in drawn if each.chosen]
    return f"★ chosen on validation: {'; '.join(rules)}" if rules else ""


def _colour(series: Series) -> str:
    if series.rank != "rival":
        return series.style.colour
    own = (GREYNESS * GREY + (1 - GREYNESS) * part for part in to_rgb(series.style.colour))
    return to_hex(tuple(own))  # type: ignore[arg-type]


def _draw_series(axes: Axes, series: Series) -> None:
    """Draw a method's line, for the last router with 95 % intervals, and its chosen rule."""
    colour, width = _colour(series), WIDTHS[series.rank]
    x, y = [p["cost_b1"] for p in series.line], [p["accuracy"] for p in series.line]
    look: dict[str, Any] = {"color": colour, "marker": series.style.marker, "ms": 2 + width}
    dashes = "--" if series.style.kind is Kind.AUDITED else "-"
    axes.plot(x, y, dashes, lw=width, label=label(series.method), **look)
    if series.rank == "ours":
        low, high = ([p[f"accuracy_{end}"] for p in series.line] for end in ("low", "high"))
        axes.fill_between(x, low, high, color=colour, alpha=0.1, linewidth=0)
    if series.chosen:
        _, point = series.chosen
        star: dict[str, Any] = {
            "marker": "*",
            "ms": 15,
            "mec": "black",
            "mew": 0.7,
            "ls": "none",
            "zorder": 5,
        }
        axes.plot(point["cost_b1"], point["accuracy"], color=colour, label="_chosen", **star)


def _finish_whole(axes: Axes, drawn: Sequence[Series], alone: Sequence[Row]) -> None:
    """Draw each model alone as a dot, and make the axis of costs logarithmic."""
    for point in alone:
        axes.plot(point["cost_b1"], point["accuracy"], marker=point["marker"], ms=7, color="black")
    shown = [point["cost_b1"] for point in (*alone, *(p for s in drawn for p in s.line))]
    axes.set_xscale("log")
    _finish(axes, 0.88 * min(shown), 1.08 * max(shown))


def _finish_near(axes: Axes, drawn: Sequence[Series], llm: Row) -> None:
    """Limit the axes to points close to the LLM's accuracy."""
    axes.axhline(llm["accuracy"], color="black", linewidth=0.8, linestyle=":")
    low, high = nearby(drawn, llm)
    axes.set_ylim(NEAR * llm["accuracy"], min(1.0, llm["accuracy"] + 0.01))
    _finish(axes, 0.95 * low, high)


def _finish(axes: Axes, low: float, high: float) -> None:
    axes.set_xlim(low, high)
    ticks = [tick for tick in TICKS if low <= tick <= high]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(lambda share, _: f"{100 * share:g} %")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _write_names(axes: Axes, drawn: Sequence[Series], alone: Sequence[Row]) -> None:
    """Write each method's name beside its line, those of the last router first."""
    named = [
        (label(series.method), _colour(series), series.rank == "ours", series.line)
        for series in by_importance(drawn)
    ]
    named += [(f"{label(p['method'])} alone", "black", False, [p]) for p in alone]
    size = LETTERS * DPI / 72
    names = [
        Name(_pixels(axes, line), LETTER * size * len(text), LINE * size)
        for text, _, _, line in named
    ]
    centres = place(names, Box(*axes.bbox.extents))
    for (text, colour, bold, _), centre in zip(named, centres, strict=True):
        if centre:
            axes.text(
                *centre,
                text,
                transform=IdentityTransform(),
                fontsize=LETTERS,
                color=_darker(colour),
                weight="bold" if bold else "normal",
                ha="center",
                va="center",
                in_layout=False,
                path_effects=[withStroke(linewidth=2.5, foreground="white")],
            )


def _pixels(axes: Axes, line: Sequence[Row]) -> np.ndarray:
    return axes.transData.transform([(p["cost_b1"], p["accuracy"]) for p in line])


def _darker(colour: str) -> str:
    return to_hex(tuple(0.75 * part for part in to_rgb(colour)))  # type: ignore[arg-type]
