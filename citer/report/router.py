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
BY_LLM = "tokens written by the LLM"


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
