"""The router's head `stand`, and where it calls the LLM: charts of the page."""

from collections.abc import Iterator, Sequence

import altair as alt
import numpy as np
import pyarrow as pa

from citer.evaluation.methods import Row
from citer.evaluation.metrics import share_interval
from citer.report.charts import ROW, TIP, Drawn, chart, percent
from citer.report.tokens import KINDS, STRETCHES, Spoken

EDGES = (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1)  # of calibration
LEAST_DOUBT = 1e-4  # doubt is 1 - score; the left end of the histogram has all lower ones
BARS = 32
DOUBTS = (1, 0.5, 0.1, 0.01, 0.001, 1e-4)  # with a label
CASE = 40  # pixels of a case in the histogram
LEAST_LOSS = 1e-4  # the axis of losses is logarithmic
BY_LLM = "tokens written by the LLM"
TRAINING, HELD_OUT = "var(--second)", "var(--ours)"  # the colours of the curves


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


def histogram_chart(holdout: pa.Table) -> Drawn:
    """Draw the scores of each case, contested tokens by their label, each as shares of its own."""
    case_N, label_N, score_N = (holdout[each].to_numpy() for each in ("case", "label", "score"))
    bars: list[Row] = []
    for case, good in sorted({*zip(case_N, label_N, strict=True)}, key=lambda p: (p[0], not p[1])):
        bars += _bars(f"{case} (label {good})", score_N[(case_N == case) & (label_N == good)])
    x = alt.X("high:Q").title("score").scale(type="log", domain=[LEAST_DOUBT, 1], reverse=True)
    x = x.axis(values=DOUBTS, labelExpr="format(1 - datum.value, '.4~f')", grid=False)
    row = alt.Row("case:N").sort(None).title(None).header(labelAnchor="start", labelOrient="top")
    drawn = chart(bars).mark_bar(color="var(--second)").properties(height=CASE)
    return drawn.encode(x, alt.X2("low"), alt.Y("share:Q").axis(None), alt.Y2(datum=0), row, TIP)


def _bars(case: str, score_M: np.ndarray) -> Iterator[Row]:
    """Yield a bar for each interval of the score that has tokens, scaled to the highest."""
    edges = np.geomspace(1.0, LEAST_DOUBT, BARS + 1)
    doubt_M = np.clip(1 - score_M.astype(float), LEAST_DOUBT * 1.0001, 1.0)
    counts, _ = np.histogram(-np.log(doubt_M), -np.log(edges))
    own = {"case": f"{case} · {len(score_M):,} tokens"}
    for count, high, low in zip(counts.tolist(), edges.tolist(), edges[1:].tolist(), strict=False):
        if count:
            tip = f"score {1 - high:.4g} to {1 - low:.4g}\n{count:,} of {len(score_M):,} tokens"
            yield own | {"low": low, "high": high, "share": count / max(counts), "tip": tip}


def curve_chart(unit: str, curves: Sequence[tuple[str, bool, Sequence[float]]]) -> Drawn:
    """Draw losses in nats per token by epoch or by step (`unit`), counted from 1.

    A curve has its colour, and is dashed if it is an earlier router's. A dot marks the least loss
    on the holdout, which decides when training stops.
    """
    x = alt.X("at:Q").title(unit).axis(grid=False)
    y = alt.Y("loss:Q").title("loss").scale(type="log", nice=False)
    layers = []
    for colour, dashed, losses in curves:
        rows = [{"at": at, "loss": max(loss, LEAST_LOSS)} for at, loss in enumerate(losses, 1)]
        dash = [4, 3] if dashed else []
        line = chart(rows).mark_line(color=colour, strokeWidth=1.6, strokeDash=dash, aria=False)
        layers.append(line)
        if colour == HELD_OUT:
            best = min(range(len(losses)), key=losses.__getitem__)
            tip = f"least loss {losses[best]:.4f}, after {unit} {best + 1} of {len(losses)}"
            layers.append(chart([rows[best] | {"tip": tip}]).mark_circle(color=colour).encode(TIP))
    return alt.layer(*layers).encode(x, y)


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
