"""f95 of methods on the same test questions, with paired intervals.

f95 is the LLM fraction that reaches 95 % of the LLM's accuracy, interpolated linearly between the
points of a method. Intervals come from a bootstrap over questions, with the same resamples for all
methods and seeds. Means are over seeds.
"""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
from rich import box
from rich.table import Table

from benchmarks.paired import Outcomes, shown
from citer.evaluation.paired import interval, resamples

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
    return with_gaps("f95", f95, ours)


def with_gaps(target: str, values: Mapping[str, np.ndarray], ours: str) -> dict[str, Any]:
    """Return intervals of value_R of each method, and of its distance to that of `ours`."""
    return {
        target: {name: interval(value_R) for name, value_R in values.items()},
        f"{target} above ours": {
            name: interval(value_R - values[ours])
            for name, value_R in values.items()
            if name != ours
        },
    }


def as_table(
    results: Mapping[str, Mapping[str, Any]], ours: str, targets: Sequence[str] = ("f95",)
) -> Table:
    """Format `with_gaps` of each task and target."""
    table = Table(box=box.MARKDOWN)
    pairs = ((target, f"above {ours}'s") for target in targets)
    for heading in ("task", "method", *chain.from_iterable(pairs)):
        table.add_column(heading)
    for task, result in results.items():
        for name in result[targets[0]]:
            cells = (_cells(result, target, name) for target in targets)
            table.add_row(task, name, *chain.from_iterable(cells))
    return table


def _cells(result: Mapping[str, Any], target: str, name: str) -> tuple[str, str]:
    above = result[f"{target} above ours"].get(name)
    return shown(result[target][name]), shown(above, "+") if above else ""
