"""The frontier: accuracy, or fidelity, against cost at batch 1, as a picture and on the page."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import altair as alt

from citer.evaluation.choice import Chosen
from citer.evaluation.measure import Measure
from citer.evaluation.methods import MODELS, Kind, Row, Style, label, styles
from citer.evaluation.metrics import fraction_for
from citer.evaluation.points import rule_of
from citer.report.charts import TIP, Drawn, chart, in_light, mixed, percent, raw, svg
from citer.report.standings import OURS, chosen_point, efficient, frontier, interval

WIDTHS = {"rival": 1.0, "earlier": 1.3, "ours": 2.4}  # by rank; later ones are drawn on top
DASHES = {Kind.AUDITED: [6, 3], Kind.POLICY: [2, 2]}
NEAR = 0.9  # "close to the LLM" starts at this share of its accuracy
COST = "cost_b1"
SHAPES = {  # of Vega, by Matplotlib's markers, which the points have; a circle for the others
    **{"s": "square", "D": "diamond", "P": "cross", "x": "cross", "X": "cross"},
    **{"^": "triangle-up", "v": "triangle-down", "<": "triangle-left", ">": "triangle-right"},
}
PICTURED = ("speculative", "entropy", "co_llm")  # the rivals in the picture, or others in place
NAMES = {Kind.ROUTER: "CITER", Kind.AUDITED: "audited routing", Kind.POLICY: "any scorer"}
# Names stand at these heights, from the SLM to the LLM, and on this side of their lines.
PLACES = {
    "policy": (0.8, "left"),
    "co_llm": (0.55, "left"),
    "router": (0.6, "right"),
    "entropy": (0.35, "right"),
}
ELSEWHERE = (0.2, "right")


class Line(NamedTuple):
    """A method's line, and the point of the rule that was chosen for it.

    `rank` is "ours" for the last router, "earlier" for those of earlier iterations.
    """

    method: str
    style: Style
    rank: str
    points: Sequence[Row]
    chosen: Row | None = None

    @property
    def colour(self) -> str:
        return mixed(self.style.colour, 60 if self.rank == "rival" else 85)


def lines_of(points: Sequence[Row], chosen: Chosen) -> list[Line]:
    """Return every method with a line, in drawing order: the last router on top."""
    found = styles(points)
    routers = [style.colour for style in found.values() if style.kind in OURS]
    drawn = []
    for method, style in found.items():
        if style.kind is Kind.ALONE:
            continue
        rank = "rival"
        if style.kind in OURS:
            rank = "ours" if style.colour == routers[-1] else "earlier"
        own = chosen_point(points, method, chosen[method].rule) if method in chosen else None
        drawn.append(Line(method, style, rank, _connected(points, method, style.kind), own))
    return sorted(drawn, key=lambda line: [*WIDTHS].index(line.rank))


def _connected(points: Sequence[Row], method: str, kind: Kind) -> list[Row]:
    """Return the points that a method's line connects.

    The line of an exact method leaves out the models alone. The line of a method with audits, or
    with several scorers, has only the efficient rules, since many others cost more than a more
    accurate one.
    """
    line = frontier(points, method)
    own = [point for point in line if point["method"] == method]
    if kind in (Kind.EXACT, Kind.BOUND):
        return sorted(own, key=lambda point: point["threshold"])
    several = any(point["audit"] for point in own) or len({point["by"] for point in own}) > 1
    return efficient(points, method) if several else line


def frontier_charts(lines: Sequence[Line], alone: Sequence[Row], measure: Measure) -> list[Drawn]:
    """Draw every method with its intervals: in full, and enlarged close to the LLM's accuracy.

    `alone` has the points of the SLM and of the LLM.
    """
    dear, floor = alone[1][COST], NEAR * alone[1]["accuracy"]
    others = [point for line in lines for point in line.points if point["method"] not in MODELS]
    near = min([dear, *(p[COST] for p in others if p["accuracy"] >= floor)])
    marks = _marks(lines, alone, measure)
    return [
        _plane(marks, measure, *_whole(lines, alone)),
        _plane(marks, measure, [0.95 * near, min(dear, 1.75 * near)], [floor, 1.002]),
    ]


def picture(points: Sequence[Row], chosen: Chosen, measure: Measure) -> str:
    """Draw the last router beside at most three rivals, as an SVG. Equal points give equal bytes.

    Audited routing is left out if any scorer was tried.

    Names stand beside the lines (`PLACES`).
    """
    lines, (slm, llm) = lines_of(points, chosen), alone_of(points)
    ours = [line for line in lines if line.rank == "ours"]
    if any(line.style.kind is Kind.POLICY for line in ours):  # which has audits, too
        ours = [line for line in ours if line.style.kind is not Kind.AUDITED]
    rivals = [line for line in lines if line.style.kind in (Kind.RIVAL, Kind.EXACT)]
    rivals.sort(key=lambda line: line.method not in PICTURED)
    shown = [*ours, *rivals[: len(PICTURED)]]
    names = [
        alone | {"name": f"{label(alone['method'])} alone", "align": align, "dx": 0, "dy": 14}
        for alone, align in ((slm, "center"), (llm, "right"))
    ]
    for line in shown:
        share, side = PLACES.get(line.method.rstrip("_0123456789"), ELSEWHERE)
        height = slm["accuracy"] + share * (llm["accuracy"] - slm["accuracy"])
        names.append(_named(line, height, side))
    marks = [*_marks(shown, (slm, llm), measure), *_texts(names)]
    drawn = _plane(marks, measure, *_whole(shown, (slm, llm)))
    return in_light(svg(drawn.properties(width=620, background="white"), "frontier"))


def alone_of(points: Sequence[Row]) -> list[Row]:
    """Return the points of the SLM and of the LLM alone, on all tasks."""
    return [p for name in MODELS for p in points if (p["method"], p["task"]) == (name, "all")]


def _whole(lines: Sequence[Line], alone: Sequence[Row]) -> tuple[list[float], list[float]]:
    """Return the ends of both axes. That of costs begins at 0."""
    shown = [*alone, *(point for line in lines for point in line.points)]
    costs, shares = ([point[name] for point in shown] for name in (COST, "accuracy"))
    return [0, 1.03 * max(costs)], [min(shares) - 0.05, max(shares) + 0.02]


def _plane(
    marks: Sequence[alt.Chart], measure: Measure, costs: list[float], shares: list[float]
) -> Drawn:
    x = alt.X(f"{COST}:Q").title("cost at batch 1 (bytes moved; LLM alone = 1)")
    y = alt.Y("accuracy:Q").title(f"{measure.name} on test").axis(format="%")
    drawn = alt.layer(*marks).encode(x.scale(domain=costs), y.scale(domain=shares))
    return drawn.properties(height=380)


def _marks(lines: Sequence[Line], alone: Sequence[Row], measure: Measure) -> list[alt.Chart]:
    """Draw lines, those of the last router with 95 % intervals, chosen rules and both models."""
    rows = [row for line in lines for row in _rows(line, measure)]
    chosen = [
        _shown(line.chosen | {"method": line.method}, measure, "chosen: ") | {"colour": line.colour}
        for line in lines
        if line.chosen
    ]
    models = [_shown(point, measure) | {"colour": "var(--fg)"} for point in alone]
    ends = {"y": "accuracy_low:Q", "y2": "accuracy_high"}
    colour = raw(alt.Color, "colour")
    points = chart(rows).encode(colour, detail="line:N")
    band = points.transform_filter("datum.rank == 'ours'").encode(**ends)
    curve = points.encode(raw(alt.StrokeWidth, "width"), raw(alt.StrokeDash, "dash"))
    dots = points.transform_filter("datum.own").encode(raw(alt.Shape, "shape"), TIP)
    return [
        band.mark_area(opacity=0.1, clip=True, aria=False),
        curve.mark_line(clip=True).encode(alt.Description("line:N"), order="order:Q"),
        dots.mark_point(filled=True, size=30, clip=True),
        chart(chosen).mark_rule(clip=True, aria=False).encode(colour, **ends),
        chart([*chosen, *models]).mark_circle(size=110, clip=True).encode(colour, TIP),
    ]


def _rows(line: Line, measure: Measure) -> Iterator[Row]:
    look = {
        "line": label(line.method),
        "rank": line.rank,
        "colour": line.colour,
        "width": WIDTHS[line.rank],
        "dash": DASHES.get(line.style.kind, [1, 0]),
        "shape": SHAPES.get(line.style.marker, "circle"),
    }
    for order, point in enumerate(line.points):
        own = {"order": order, "own": point["method"] not in MODELS}
        yield look | own | _shown(point, measure)


def _shown(point: Row, measure: Measure, before: str = "") -> Row:
    names = (COST, "accuracy", "accuracy_low", "accuracy_high")
    tip = (
        f"{before}{label(point['method'])} · {rule_of(point):.4g}\n"
        f"{measure.name} {percent(point['accuracy'])} {interval(point)}\n"
        f"cost {point[COST]:.3f} · LLM wrote {percent(point['llm_fraction'])}"
    )
    return {name: point[name] for name in names} | {"tip": tip}


def _named(line: Line, height: float, side: str) -> Row:
    """Return a name beside its line at a height, or where the line comes closest to it."""
    costs, shares = ([point[name] for point in line.points] for name in (COST, "accuracy"))
    cost, share = fraction_for(height, costs, shares), max(height, min(shares))
    if cost is None:
        cost, share = max(zip(costs, shares, strict=True), key=lambda point: point[1])
    look = {"align": "right", "dx": -9} if side == "left" else {"align": "left", "dx": 9}
    name = NAMES.get(line.style.kind) or label(line.method)
    return look | {"name": name, "colour": line.colour, COST: cost, "accuracy": share, "dy": 4}


def _texts(names: Sequence[Row]) -> Iterator[alt.Chart]:
    """Write names, each on a halo that hides the lines below it."""
    look: dict[str, Any] = {key: {"expr": f"datum.{key}"} for key in ("align", "dx", "dy")}
    look |= {"fontSize": 13, "baseline": "top", "aria": False}
    halo: dict[str, Any] = {"stroke": "white", "strokeWidth": 4, "strokeJoin": "round"}
    for outline in (halo, {}):
        text = chart(names).mark_text(**look, **outline)
        yield text.encode(raw(alt.Color, "colour"), text="name:N")
