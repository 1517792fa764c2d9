"""The deployed rule beside each rival: cost at equal accuracy, with paired intervals."""

from collections.abc import Sequence

from citer.evaluation.measure import Measure
from citer.evaluation.methods import Row
from citer.report.against import COST, rival_label
from citer.report.page.chart import TOP, Axis, Chart, x_axis

ROW, FOOT, NAMES = 24, 40, 110  # pixels: of a rival, of the axis, of the names
MOST = 1.0  # the right end of the axis: twice the rival's cost


def rivals_chart(rows: Sequence[Row], measure: Measure) -> Chart | None:
    """Draw the change of cost against each rival that is as accurate, the dearest rival first.

    The rows are those of `Comparison.against` for one method, on all tasks. Returns None if there
    are none.
    """
    key = measure.key(COST)
    reached = sorted((row for row in rows if row[key] is not None), key=lambda row: row[key])
    if not reached:
        return None
    height = TOP + ROW * len(reached) + FOOT
    drawn = [row[name] for row in reached for name in (key, f"{key}_low", f"{key}_high")]
    known = [change for change in drawn if change is not None]
    low, high = min(0.0, *known), min(MOST, max(0.1, *known))
    names = [(number, rival_label(row)) for number, row in enumerate(reached)]
    title = f"change of cost at equal {measure.name}"
    x = x_axis(title, low, high, 400, NAMES, percent=True)
    y = Axis("", -0.5, len(reached) - 0.5, TOP, height - FOOT, named=names)
    chart = Chart(400, height, x, y, title)
    chart.line([(0, -0.5), (0, len(reached) - 0.5)], "base")
    for number, row in enumerate(reached):
        _draw(chart, number, row, key)
    return chart


def _draw(chart: Chart, number: int, row: Row, key: str) -> None:
    low, high = (row[f"{key}_{end}"] for end in ("low", "high"))
    tip = f"{rival_label(row)}: {_signed(row[key])} [{_signed(low)}, {_signed(high)}]"
    ends = [chart.x.low if low is None else low, MOST if high is None else min(MOST, high)]
    chart.line([(end, number) for end in ends], "whisker change")
    chart.dot(min(MOST, row[key]), number, _verdict(low, high), tip)


def _signed(change: float | None) -> str:
    return "no limit" if change is None else f"{100 * change:+.1f}\N{NO-BREAK SPACE}%"


def _verdict(low: float | None, high: float | None) -> str:
    """Return the CSS class of a change that is below 0, above 0, or unclear."""
    if high is not None and high < 0:
        return "change better"
    return "change worse" if low is not None and low > 0 else "change"


def left_out(rows: Sequence[Row], measure: Measure) -> list[str]:
    """Return the rivals that do not reach the deployed rule's accuracy."""
    return [rival_label(row) for row in rows if row[measure.key(COST)] is None]
