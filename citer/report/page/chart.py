"""Charts as marks in pixels, which the template `chart.html` writes as SVG."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import log10
from typing import Any, NamedTuple

from matplotlib.ticker import MaxNLocator

LEFT, RIGHT, TOP, BOTTOM = 44, 12, 10, 40  # margins
LOG_STEPS = (1, 1.5, 2, 3, 5, 7)


class Tick(NamedTuple):
    at: float
    label: str


@dataclass(frozen=True)
class Axis:
    """Maps values from `low` to `high` to pixels from `start` to `end`."""

    title: str
    low: float
    high: float
    start: float
    end: float
    log: bool = False
    named: Sequence[tuple[float, str]] = ()  # ticks; without them, round numbers
    percent: bool = False

    def at(self, value: float) -> float:
        low, high, value = (
            (log10(each) if self.log else each) for each in (self.low, self.high, value)
        )
        share = (value - low) / ((high - low) or 1)
        return round(self.start + share * (self.end - self.start), 1)

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high

    @property
    def ticks(self) -> list[Tick]:
        named = self.named or [(value, self._label(value)) for value in self._round_numbers()]
        return [Tick(self.at(value), text) for value, text in named if self.holds(value)]

    def _label(self, value: float) -> str:
        return f"{100 * value:.3g} %" if self.percent else f"{value:.3g}"

    def _round_numbers(self) -> list[float]:
        if self.log:
            return [step * 10.0**power for power in range(-9, 4) for step in LOG_STEPS]
        steps = MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]).tick_values(self.low, self.high)
        return [round(float(step), 12) for step in steps]


class Mark(NamedTuple):
    """A shape of a chart. `look` has CSS classes, `tip` is shown on hover and tap."""

    shape: str  # path, dot, bar or text
    look: str
    numbers: Sequence[
        float
    ] = ()  # of a dot: x, y, radius; a bar: x, y, width, height; a text: x, y
    path: str = ""
    text: str = ""
    tip: str = ""
    colour: str = ""
    anchor: str = "start"


@dataclass
class Chart:
    """A plane with two axes and marks on it."""

    width: int
    height: int
    x: Axis
    y: Axis
    description: str
    marks: list[Mark] = field(default_factory=list)

    @property
    def left(self) -> float:
        return min(self.x.start, self.x.end)

    @property
    def right(self) -> float:
        return max(self.x.start, self.x.end)

    @property
    def top(self) -> float:
        return min(self.y.start, self.y.end)

    @property
    def bottom(self) -> float:
        return max(self.y.start, self.y.end)

    def line(self, points: Iterable[tuple[float, float]], look: str, colour: str = "") -> None:
        places = " L".join(f"{self.x.at(x):g} {self.y.at(y):g}" for x, y in points)
        if places:
            self.marks.append(Mark("path", look, path=f"M{places}", colour=colour))

    def dot(
        self, x: float, y: float, look: str, tip: str = "", colour: str = "", radius: float = 3.5
    ) -> None:
        place = (self.x.at(x), self.y.at(y), radius)
        self.marks.append(Mark("dot", look, place, tip=tip, colour=colour))

    def bar(
        self, left: float, right: float, low: float, high: float, look: str, tip: str = ""
    ) -> None:
        """Add a rectangle from (left, low) to (right, high)."""
        x, y = self.x.at(left), self.y.at(high)
        numbers = (x, y, max(0.0, self.x.at(right) - x - 1), round(self.y.at(low) - y, 1))
        self.marks.append(Mark("bar", look, numbers, tip=tip))

    def text(
        self, x: float, y: float, text: str, look: str, colour: str = "", anchor: str = "start"
    ) -> None:
        """Add a text at a place in pixels."""
        mark = Mark("text", look, (round(x, 1), round(y, 1)), text=text, colour=colour)
        self.marks.append(mark._replace(anchor=anchor))


def x_axis(title: str, low: float, high: float, width: int, left: int = LEFT, **kind: Any) -> Axis:
    return Axis(title, low, high, left, width - RIGHT, **kind)


def y_axis(title: str, low: float, high: float, height: int, **kind: Any) -> Axis:
    return Axis(title, low, high, height - BOTTOM, TOP, **kind)
