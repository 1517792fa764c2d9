"""The lines of the frontier picture and page: which points each method's line connects."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from citer.evaluation.choice import Chosen
from citer.evaluation.methods import MODELS, Kind, Row, Style, styles
from citer.evaluation.report import chosen_point, efficient, frontier
from citer.rule import Rule

# Methods of later kinds are drawn above those of earlier ones.
LAYERS = {Kind.EXACT: 0, Kind.RIVAL: 1, Kind.ROUTER: 2, Kind.AUDITED: 2}
NEAR = 0.9  # "close to the LLM" starts at this share of its accuracy
OURS = (Kind.ROUTER, Kind.AUDITED)


class Series(NamedTuple):
    """A method's line, and the rule that was chosen for it with its point."""

    method: str
    style: Style
    line: Sequence[Row]
    chosen: tuple[Rule, Row] | None = None

    @property
    def is_ours(self) -> bool:
        """Whether a trained router decides, in contrast to a rival."""
        return self.style.kind in OURS


def all_series(points: Sequence[Row], chosen: Chosen) -> Iterator[Series]:
    """Yield every method with a line, in drawing order."""
    lines = {name: style for name, style in styles(points).items() if style.kind in LAYERS}
    for method in sorted(lines, key=lambda name: LAYERS[lines[name].kind]):
        line = _line(points, method, lines[method].kind)
        place = None
        if method in chosen:
            rule = chosen[method].rule
            place = rule, chosen_point(points, method, rule)
        yield Series(method, lines[method], line, place)


def _line(points: Sequence[Row], method: str, kind: Kind) -> list[Row]:
    """Return the points that a method's line connects.

    The line of an exact method leaves out the models alone. The line of an audited method has only
    the efficient rules, since many others cost more than a more accurate one.
    """
    if kind is Kind.EXACT:
        own = (point for point in frontier(points, method) if point["method"] == method)
        return sorted(own, key=lambda point: point["threshold"])
    if kind is Kind.AUDITED:
        return efficient(points, method)
    return frontier(points, method)


def latest(drawn: Sequence[Series]) -> str:
    """Return the colour of the last router, by which its iteration is known."""
    return next((each.style.colour for each in reversed(drawn) if each.is_ours), "")


def nearby(drawn: Sequence[Series], llm: Row) -> tuple[float, float]:
    """Return the costs between which methods come close to the LLM's accuracy."""
    near = [
        point["cost_b1"]
        for series in drawn
        for point in series.line
        if point["method"] not in MODELS and point["accuracy"] >= NEAR * llm["accuracy"]
    ]
    least = min(near, default=llm["cost_b1"])
    return least, min(llm["cost_b1"], 2.5 * least)
