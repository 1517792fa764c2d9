"""The lines of the frontier picture and page: which points each method's line connects."""

from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

from citer.evaluation.choice import Chosen
from citer.evaluation.methods import MODELS, Kind, Row, Style, styles
from citer.report.standings import chosen_point, efficient, frontier
from citer.rule import Rule

Rank = Literal["rival", "earlier", "ours"]
RANKS: tuple[Rank, ...] = get_args(Rank)  # later ones are drawn above earlier ones
NEAR = 0.9  # "close to the LLM" starts at this share of its accuracy
OURS = (Kind.ROUTER, Kind.AUDITED)


class Series(NamedTuple):
    """A method's line, and the rule that was chosen for it with its point.

    `rank` is "ours" for the last router, "earlier" for those of earlier iterations.
    """

    method: str
    style: Style
    rank: Rank
    line: Sequence[Row]
    chosen: tuple[Rule, Row] | None = None


def all_series(points: Sequence[Row], chosen: Chosen) -> list[Series]:
    """Return every method with a line, in drawing order: the last router on top."""
    found = styles(points)
    routers = [style.colour for style in found.values() if style.kind in OURS]
    drawn = [
        Series(
            method,
            style,
            _rank(style, routers),
            _line(points, method, style.kind),
            _place(points, chosen, method),
        )
        for method, style in found.items()
        if style.kind is not Kind.ALONE
    ]
    return sorted(drawn, key=lambda series: RANKS.index(series.rank))


def _rank(style: Style, routers: Sequence[str]) -> Rank:
    """Return the rank of a method. `routers` has the colours of all routers, in order."""
    if style.kind not in OURS:
        return "rival"
    return "ours" if style.colour == routers[-1] else "earlier"


def _place(points: Sequence[Row], chosen: Chosen, method: str) -> tuple[Rule, Row] | None:
    if method not in chosen:
        return None
    rule = chosen[method].rule
    return rule, chosen_point(points, method, rule)


def _line(points: Sequence[Row], method: str, kind: Kind) -> list[Row]:
    """Return the points that a method's line connects.

    The line of an exact method leaves out the models alone. The line of a method with audits has
    only the efficient rules, since many others cost more than a more accurate one.
    """
    if kind in (Kind.EXACT, Kind.BOUND):
        own = (point for point in frontier(points, method) if point["method"] == method)
        return sorted(own, key=lambda point: point["threshold"])
    line = frontier(points, method)
    return efficient(points, method) if any(point["audit"] for point in line) else line


def by_importance(drawn: Sequence[Series]) -> list[Series]:
    """Return the methods in the order in which they choose the place of their name."""
    return sorted(drawn, key=lambda series: -RANKS.index(series.rank))


def nearby(drawn: Sequence[Series], llm: Row) -> tuple[float, float]:
    """Return the costs between which methods first come close to the LLM's accuracy."""
    near = [
        point["cost_b1"]
        for series in drawn
        for point in series.line
        if point["method"] not in MODELS and point["accuracy"] >= NEAR * llm["accuracy"]
    ]
    least = min(near, default=llm["cost_b1"])
    return least, min(llm["cost_b1"], 1.75 * least)
