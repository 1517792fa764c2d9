"""Charts of the page: costs, the scores of the head `stand`, and where the router calls the LLM."""

from collections.abc import Iterator, Sequence

import altair as alt
import numpy as np
import pyarrow as pa

from citer.evaluation.cost import Batch
from citer.evaluation.measure import Measure
from citer.evaluation.methods import Kind, Row, label
from citer.evaluation.metrics import share_interval
from citer.report.charts import ROW, TIP, Drawn, chart, mixed, percent, raw
from citer.report.standings import OURS
from citer.report.tokens import KINDS, STRETCHES, Spoken
from citer.report.worth import COST

SHADES = (40, 70, 100)  # percent of the colour, by batch size
MOST = 1.0  # the right end of the axis of changes: twice the rival's cost
FAR = 9.0  # an end without limit: outside the axis
EDGES = (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1)  # of calibration
BY_LLM = "tokens written by the LLM"


def worth_chart(rows: Sequence[Row], measure: Measure) -> Drawn | None:
    """Draw the change of cost against all others that are as accurate, the dearest first.

    The rows are those of `worth` on all tasks. Returns None if there are none.
    """
    names = [COST, f"{COST}_low", f"{COST}_high"]
    reached = sorted((r for r in rows if r[COST] is not None), key=lambda row: row[COST])
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
    return row["other"] + " (a bound)" * (row["kind"] == Kind.BOUND)


def _signed(change: float | None) -> str:
    return "no limit" if change is None else f"{100 * change:+.1f}\N{NO-BREAK SPACE}%"


def left_out(rows: Sequence[Row]) -> list[str]:
    """Return the others that do not reach the deployed rule's accuracy."""
    return [_name(row) for row in rows if row[COST] is None]


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


def calibration_chart(holdout: pa.Table) -> Drawn:
    """Draw the share of good drafts in bins of the score, with Wilson's intervals."""
    bins: list[Row] = []
    for score_M, label_M in _binned(holdout):
        good, count, mean = int(label_M.sum()), len(label_M), float(score_M.mean())
        low, high = share_interval(good, count)
        tip = f"mean score {mean:.3f}\n{good} of {count} drafts good: {percent(good / count)}"
        row = {"score": mean, "share": good / count, "low": low, "high": high, "tip": tip}
        bins.append(row)
    x = alt.X("score:Q").title("score: the predicted share of good drafts").axis(format="%")
    y = alt.Y("share:Q").title("share of good drafts").axis(format="%")
    x, y = x.scale(domain=[0, 1]), y.scale(domain=[0, 1])
    guide = chart({"score": end, "share": end} for end in (0, 1)).encode(x, y)
    base = chart(bins).encode(x, y)
    return alt.layer(
        guide.mark_line(color="var(--muted)", strokeWidth=1, strokeDash=[3, 3], aria=False),
        base.mark_rule(color="var(--ours)", aria=False).encode(y="low:Q", y2="high"),
        base.mark_circle(color="var(--ours)").encode(TIP),
    )


def _binned(holdout: pa.Table) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    score_N, label_N = (holdout[name].to_numpy() for name in ("score", "label"))
    bin_N = np.digitize(score_N, EDGES[1:-1])
    for number in np.unique(bin_N):
        yield score_N[bin_N == number], label_N[bin_N == number]


def calibration_error(holdout: pa.Table) -> float:
    """Return the mean distance between score and share over the bins, weighted by their tokens.

    This is the expected calibration error of Naeini et al. (AAAI 2015), on the bins of the chart.
    """
    gaps = [abs((score_M - label_M).sum()) for score_M, label_M in _binned(holdout)]
    return float(sum(gaps) / len(holdout))


def stretch_chart(spoken: Sequence[Spoken]) -> Drawn:
    """Draw the LLM's share of the tokens in each tenth of an answer."""
    shares = [_share(spoken, "stretch", stretch, f"{stretch + 1}") for stretch in range(STRETCHES)]
    x = alt.X("name:N").sort(None).title("tenth of the answer").axis(labelAngle=0, grid=False)
    base = chart(filter(None, shares)).encode(x, alt.Y("share:Q").title(BY_LLM).axis(format="%"))
    whiskers = base.mark_rule(color="var(--fg)", aria=False).encode(y="low:Q", y2="high")
    return alt.layer(base.mark_bar(color="var(--second)").encode(TIP), whiskers)


def kind_chart(spoken: Sequence[Spoken]) -> Drawn:
    """Draw the LLM's share of the tokens of each kind."""
    shares = [_share(spoken, "kind", kind, kind) for kind in KINDS]
    y = alt.Y("name:N").sort(None).title(None).axis(grid=False)
    base = chart(filter(None, shares)).encode(alt.X("share:Q").title(BY_LLM).axis(format="%"), y)
    whiskers = base.mark_rule(color="var(--fg)", aria=False).encode(x="low:Q", x2="high")
    bars = base.mark_bar(color="var(--second)").encode(TIP)
    return alt.layer(bars, whiskers).properties(height=ROW)


def _share(spoken: Sequence[Spoken], field: str, value: object, name: str) -> Row | None:
    """Return the LLM's share of the tokens whose `field` has a value, None if there are none."""
    own = [each for each in spoken if getattr(each, field) == value]
    by_llm, count = (sum(getattr(each, n) for each in own) for n in ("llm_tokens", "tokens"))
    if not count:
        return None
    low, high = share_interval(by_llm, count)
    tip = f"{name}\nthe LLM wrote {by_llm:,} of {count:,} tokens: {percent(by_llm / count)}"
    return {"name": name, "share": by_llm / count, "low": low, "high": high, "tip": tip}
