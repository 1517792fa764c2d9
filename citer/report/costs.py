"""Charts of costs: beside all others, and by batch size."""

from collections.abc import Iterator, Sequence

import altair as alt

from citer.evaluation.cost import Batch
from citer.evaluation.measure import Measure
from citer.evaluation.methods import Kind, Row, label
from citer.report.charts import ROW, TIP, Drawn, chart, mixed, percent, raw
from citer.report.standings import OURS
from citer.report.worth import COST, PART

SHADES = (40, 70, 100)  # percent of the colour, by batch size
MOST = 1.0  # the right end of the axis of changes: twice the rival's cost
FAR = 9.0  # an end without limit: outside the axis


def worth_chart(rows: Sequence[Row], measure: Measure) -> Drawn | None:
    """Draw the change of cost against all others that are as accurate, the dearest first.

    The rows are those of `worth` on all tasks. Returns None if there are none.
    """
    names = [measure.key(f"{COST}{end}") for end in ("", "_low", "_high")]
    reached = sorted((r for r in rows if r[names[0]] is not None), key=lambda row: row[names[0]])
    if not reached:
        return None
    known = [row[name] for row in reached for name in names if row[name] is not None]
    domain = [min(0.0, *known), min(MOST, max(0.1, *known))]
    title = f"change of cost at equal {measure.name}"
    x = alt.X("change:Q").title(title).axis(format="+%").scale(domain=domain, clamp=True)
    base = chart(_change(row, *(row[name] for name in names)) for row in reached).encode(
        x, alt.Y("name:N").sort(None).title(None), raw(alt.Color, "colour")
    )
    zero = chart([{}]).mark_rule(color="var(--muted)", aria=False).encode(x=alt.datum(0))
    whiskers = base.mark_rule(strokeWidth=2, aria=False).encode(x="low:Q", x2="high")
    dots = base.mark_circle().encode(TIP)
    return alt.layer(zero, whiskers, dots).properties(height=ROW)


def _change(row: Row, change: float, low: float | None, high: float | None) -> Row:
    """Return a dot with its whisker, in the colour of the verdict."""
    tip = f"{_name(row)}: {_signed(change)} [{_signed(low)}, {_signed(high)}]"
    low, high = -FAR if low is None else low, FAR if high is None else high
    colour = "var(--good)" if high < 0 else "var(--bad)" if low > 0 else "var(--muted)"
    shown = {"name": _name(row), "change": change, "low": low, "high": high}
    return shown | {"colour": colour, "tip": tip}


def _name(row: Row) -> str:
    marks = {PART: "", Kind.BOUND: " (a bound)"}
    return row["other"] + marks.get(row["kind"], "")


def _signed(change: float | None) -> str:
    return "no limit" if change is None else f"{100 * change:+.1f}\N{NO-BREAK SPACE}%"


def left_out(rows: Sequence[Row], measure: Measure) -> list[str]:
    """Return the others that do not reach the deployed rule's accuracy."""
    return [_name(row) for row in rows if row[measure.key(COST)] is None]


def batch_chart(rows: Sequence[Row], batches: Sequence[Batch]) -> Drawn:
    """Draw the cost of each standing at every batch size, the cheapest at batch 1 first."""
    rows = [row for row in rows if row["task"] == "all" and row["method"] != "llm"]
    rows.sort(key=lambda row: row["cost_b1"])
    x = alt.X("cost:Q").title("cost (LLM alone = 1)")
    y = alt.Y("name:N").sort(None).title(None)
    base = chart(cost for row in rows for cost in _costs(row, batches)).encode(y)
    spans = base.mark_rule(strokeWidth=3, aria=False).encode(x="min(cost):Q", x2="max(cost):Q")
    dots = base.mark_point().encode(x, TIP)
    return alt.layer(
        spans.encode(raw(alt.Color, "span")),
        dots.encode(raw(alt.Fill, "fill"), raw(alt.Stroke, "stroke")),
    ).properties(height=ROW)


def _costs(row: Row, batches: Sequence[Batch]) -> Iterator[Row]:
    """Yield a dot for each batch: the larger, the stronger; a ring if the LLM is delayed."""
    sizes = sorted({batch.slots for batch in batches})
    own = {
        "name": f"{label(row['method'])}, {percent(row['accuracy'], 0)}",
        "span": mixed("var(--ours)", 45, "bg") if row["kind"] in OURS else "var(--rule)",
    }
    for batch in batches:
        cost = row[batch.column]
        shade = mixed("var(--second)", SHADES[min(2, sizes.index(batch.slots))], "bg")
        look = ("var(--bg)", "var(--second)") if batch.schedule == "delayed" else (shade, shade)
        tip = f"{label(row['method'])}\n{batch}: cost {cost:.3f}"
        yield own | {"cost": cost, "fill": look[0], "stroke": look[1], "tip": tip}
