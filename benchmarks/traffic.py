"""When is a broken promise seen? The detector, the e-process and windows on simulated traffic.

    python -m benchmarks.traffic

Each stream is a sequence of shadow answers under a promise of at most `LIMIT` lost ones. Writes
`benchmarks/results/traffic.{json,md}`.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy.stats import binom

from benchmarks.report import RESULTS, command, markdown, write_results
from citer.serving.martingales import WORSE, factors

SEED, STREAMS, ANSWERS = 17, 2000, 20_000
LIMIT, FALSE_ALARMS, DELTA = 0.05, 20_000.0, 0.05
GOOD = 0.03  # the risk before a change
CHANGE = 2000  # answers
# The window alarms when so many of its answers are lost as 5 in 100,000 windows at the limit. The
# loose one alarms at this number, and then about as often falsely as the detector.
WINDOW, RARE, LOOSE = 200, 5e-5, 21

Risk = Callable[[int], float]  # of the answer of this number

TRAFFIC: Mapping[str, tuple[int, Risk]] = {  # the answer of the change, and the risk
    "always .03": (0, lambda n: 0.03),
    "always .05, the limit": (0, lambda n: 0.05),
    "always .06": (0, lambda n: 0.06),
    "always .08": (0, lambda n: 0.08),
    "always .10": (0, lambda n: 0.10),
    "always .20": (0, lambda n: 0.20),
    ".03, then .10": (CHANGE, lambda n: GOOD if n < CHANGE else 0.10),
    ".03, then a slow drift: .01 in 1,000 answers": (
        CHANGE,
        lambda n: min(GOOD + max(n - CHANGE, 0) * 1e-5, 0.5),
    ),
    ".03, then one answer in five is of a new task at .30": (
        CHANGE,
        lambda n: GOOD if n < CHANGE else 0.8 * GOOD + 0.2 * 0.30,
    ),
    ".03, with bursts of 50 answers at .30 in every 1,000": (
        CHANGE,
        lambda n: 0.30 if n >= CHANGE and n % 1000 < 50 else GOOD,
    ),
    "quiet hours at .01 and hard ones at .08, 500 answers each": (
        0,
        lambda n: 0.08 if n % 1000 >= 500 else 0.01,
    ),
}


def alarms(risk: Risk) -> dict[str, np.ndarray]:
    """Return the answer at which each stream is first alarmed; `ANSWERS` if it never is."""
    random = np.random.default_rng(SEED)
    kept_F, lost_F = (factors(lost, LIMIT, WORSE) for lost in (False, True))
    sum_SF, log_SF = np.zeros((2, STREAMS, len(WORSE)))
    recent_WS = np.zeros((WINDOW, STREAMS), dtype=bool)
    most = binom.isf(RARE, WINDOW, LIMIT)
    names = ("detector", "e-process", "window", "loose window")
    first = {name: np.full(STREAMS, ANSWERS) for name in names}
    for n in range(ANSWERS):
        lost_S = random.random(STREAMS) < risk(n)
        factor_SF = np.where(lost_S[:, None], lost_F, kept_F)
        # Far beyond every alarm, the evidence need not grow.
        sum_SF = np.minimum((sum_SF + 1) * factor_SF, 1e100)
        log_SF = np.minimum(log_SF + np.log(factor_SF), 200)
        recent_WS[n % WINDOW] = lost_S
        full, lost = n >= WINDOW - 1, recent_WS.sum(0)
        alarmed = {
            "detector": sum_SF.mean(1) >= FALSE_ALARMS,
            "e-process": np.exp(log_SF).mean(1) >= 1 / DELTA,
            "window": full & (lost > most),
            "loose window": full & (lost >= LOOSE),
        }
        for name, now_S in alarmed.items():
            first[name][now_S & (first[name] == ANSWERS)] = n
    return first


def row(change: int, first: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Return the share of alarmed streams, and the answers from the change to the alarm."""
    cells: dict[str, Any] = {}
    for name, found_S in first.items():
        after = found_S[(found_S >= change) & (found_S < ANSWERS)] - change + 1
        cells[f"{name}: alarmed"] = float((found_S < ANSWERS).mean())
        cells[f"{name}: too early"] = float((found_S < change).mean())
        low, middle, high = np.percentile(after, [10, 50, 90]) if len(after) else [np.nan] * 3
        cells[f"{name}: answers"] = f"{middle:,.0f} ({low:,.0f} to {high:,.0f})"
    return cells


def main() -> None:
    """Simulate all kinds of traffic, and write a table."""
    rows = [
        {"traffic": name} | row(change, alarms(risk)) for name, (change, risk) in TRAFFIC.items()
    ]
    write_results(RESULTS / "traffic", {"streams": STREAMS, "rows": rows}, markdown(rows))


if __name__ == "__main__":
    command(main)
