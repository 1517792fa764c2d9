"""The router's head `stand`: calibration, scores by case, and the curves of training."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from citer.evaluation.metrics import share_interval
from citer.report.page.chart import BOTTOM, TOP, Axis, Chart, x_axis, y_axis
from citer.report.page.words import percent

WIDTH, HEIGHT = 400, 290
EDGES = (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1)  # of calibration
LEAST_DOUBT = 1e-4  # doubt is 1 - score; the left end of the histogram has all lower ones
BARS = 32
DOUBTS = [(1.0, "0"), (0.5, ".5"), (0.1, ".9"), (0.01, ".99"), (0.001, ".999"), (1e-4, ".9999")]
LEAST_LOSS = 1e-4  # the axis of losses is logarithmic
STOPS = "curve1"  # the CSS class of a curve that decides when training stops
ROW, GAP = 44, 18  # of the histogram: pixels of a case, and of its name above


def calibration_chart(holdout: pa.Table) -> Chart:
    """Draw the share of good drafts in bins of the score, with Wilson's intervals."""
    score_N, label_N = (holdout[name].to_numpy() for name in ("score", "label"))
    chart = Chart(
        WIDTH,
        HEIGHT,
        x_axis("score: the predicted share of good drafts", 0, 1, WIDTH, percent=True),
        y_axis("share of good drafts", 0, 1, HEIGHT, percent=True),
        "calibration of the head `stand` on the holdout",
    )
    chart.line([(0, 0), (1, 1)], "guide")
    bin_N = np.digitize(score_N, EDGES[1:-1])
    for number in np.unique(bin_N):
        _draw_bin(chart, score_N[bin_N == number], label_N[bin_N == number])
    return chart


def _draw_bin(chart: Chart, score_M: np.ndarray, label_M: np.ndarray) -> None:
    good, count, mean = int(label_M.sum()), len(label_M), float(score_M.mean())
    low, high = share_interval(good, count)
    chart.line([(mean, low), (mean, high)], "whisker ours")
    tip = f"mean score {mean:.3f}\n{good} of {count} drafts good: {percent(good / count)}"
    chart.dot(mean, good / count, "point ours", tip, radius=4)


def calibration_error(holdout: pa.Table) -> float:
    """Return the mean distance between score and share over the bins, weighted by their tokens.

    This is the expected calibration error of Naeini et al. (AAAI 2015), on the bins of the chart.
    """
    score_N, label_N = (holdout[name].to_numpy() for name in ("score", "label"))
    bin_N = np.digitize(score_N, EDGES[1:-1])
    gaps = [abs((score_N - label_N)[bin_N == number].sum()) for number in np.unique(bin_N)]
    return float(sum(gaps) / len(score_N))


def histogram_chart(holdout: pa.Table) -> Chart:
    """Draw the scores of each case, contested tokens by their label, each as shares of its own."""
    groups = _by_case(holdout)
    height = TOP + (ROW + GAP) * len(groups) + BOTTOM
    x = Axis("score", LEAST_DOUBT, 1.0, WIDTH - 12, 12, log=True, named=DOUBTS)
    y = Axis("", 0, height - TOP - BOTTOM, height - BOTTOM, TOP, named=[(-1, "")])
    chart = Chart(WIDTH, height, x, y, "histogram of the scores by case")
    for number, (name, score_M) in enumerate(groups.items()):
        top = TOP + (ROW + GAP) * number
        chart.text(12, top + 12, f"{name} · {len(score_M):,} tokens", "name")
        _draw_scores(chart, score_M, chart.height - BOTTOM - top - ROW - GAP)
    return chart


def _by_case(holdout: pa.Table) -> dict[str, np.ndarray]:
    case_N, label_N, score_N = (holdout[each].to_numpy() for each in ("case", "label", "score"))
    groups: dict[str, np.ndarray] = {}
    for case in sorted(set(case_N)):
        for label in (1, 0):
            chosen_N = (case_N == case) & (label_N == label)
            if chosen_N.any():
                groups[f"{case} (label {label})"] = score_N[chosen_N]
    return groups


def _draw_scores(chart: Chart, score_M: np.ndarray, base: float) -> None:
    edges = np.geomspace(1.0, LEAST_DOUBT, BARS + 1)
    doubt_M = np.clip(1 - score_M.astype(float), LEAST_DOUBT * 1.0001, 1.0)
    counts, _ = np.histogram(-np.log(doubt_M), -np.log(edges))
    for count, high, low in zip(counts.tolist(), edges, edges[1:], strict=False):
        if count:
            tip = f"score {1 - high:.4g} to {1 - low:.4g}\n{count:,} of {len(score_M):,} tokens"
            chart.bar(high, low, base, base + ROW * count / max(counts), "ours", tip)
    chart.line([(1.0, base), (LEAST_DOUBT, base)], "base")


def curve_chart(title: str, unit: str, curves: Sequence[tuple[str, Sequence[float]]]) -> Chart:
    """Draw losses in nats per token by epoch or by step (`unit`), counted from 1.

    Each curve has its CSS classes. If it decides when training stops, a dot marks its least loss.
    """
    longest = max(len(curve) for _, curve in curves)
    losses = [max(loss, LEAST_LOSS) for _, curve in curves for loss in curve]
    x = x_axis(unit, 1, max(2, longest), WIDTH)
    y = y_axis("loss", 0.9 * min(losses), 1.1 * max(losses), HEIGHT, log=True)
    chart = Chart(WIDTH, HEIGHT, x, y, title)
    for look, curve in curves:
        chart.line(enumerate((max(loss, LEAST_LOSS) for loss in curve), 1), f"line {look}")
        if STOPS in look:
            best = min(range(len(curve)), key=curve.__getitem__)
            tip = f"least loss {curve[best]:.4f}, after {unit} {best + 1} of {len(curve)}"
            chart.dot(best + 1, max(curve[best], LEAST_LOSS), f"point {look}", tip, radius=4)
    return chart
