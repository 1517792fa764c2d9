"""f95 of methods on the same test questions, with paired intervals.

f95 is the LLM fraction that reaches 95 % of the LLM's accuracy, interpolated linearly between the
points of a method. Intervals come from a bootstrap over questions, with the same resamples for all
methods and seeds. Means are over seeds.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich import box
from rich.table import Table

from benchmarks.paired import Outcomes, interval, resamples, shown

KEPT = 0.95  # of the LLM's accuracy
Answered = dict[str, list[Outcomes]]  # by method, one for each seed


def note(answered: Answered, outcomes: Mapping[str, Outcomes]) -> None:
    """Add the outcomes of one seed, or of a method without training."""
    for name, outcome in outcomes.items():
        answered.setdefault(name, []).append(outcome)


def compared(
    answered: Mapping[str, Sequence[Outcomes]], in_task_Q: np.ndarray, ours: str
) -> dict[str, Any]:
    """Compute f95 of each method on some questions, and how far it is above that of `ours`."""
    drawn_RQ = resamples(in_task_Q)
    f95 = {
        name: np.mean([outcome.fraction_for(KEPT, drawn_RQ) for outcome in seeds], axis=0)
        for name, seeds in answered.items()
    }
    return {
        "f95": {name: interval(f95_R) for name, f95_R in f95.items()},
        "f95 above ours": {
            name: interval(f95_R - f95[ours]) for name, f95_R in f95.items() if name != ours
        },
    }


def as_table(results: Mapping[str, Mapping[str, Any]], ours: str) -> Table:
    """Format `compared` of each task."""
    table = Table(box=box.MARKDOWN)
    for heading in ("task", "method", "f95", f"above {ours}'s"):
        table.add_column(heading)
    for task, result in results.items():
        for name, f95 in result["f95"].items():
            above = result["f95 above ours"].get(name)
            table.add_row(task, name, shown(f95), shown(above, "+") if above else "")
    return table
