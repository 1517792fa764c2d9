"""What the deployed rule is worth, for people: a Markdown table."""

from collections.abc import Sequence

from rich import box
from rich.table import Table

from citer.evaluation.measure import Measure
from citer.evaluation.methods import Row
from citer.report.standings import markdown
from citer.report.worth import ACCURACY, COST, PART

LEGEND = """\
Cost: by how many percent the deployed rule moves more bytes at batch 1 than the others, at the
{measure} of the deployed rule. Points: by how many percentage points its {measure} is above
theirs, at its cost.
The others are the candidates that differ from the deployed rule in one part, then all methods. They
may use any of their rules, or mix two of them by question; they are read on test, which favours
them. In brackets: 95 % intervals of a paired bootstrap over questions, each for itself. Not
reached: neither the others nor a model alone have the {measure} of the deployed rule (cost), or are
as cheap (points).
"""


def summary(rows: Sequence[Row], measure: Measure) -> str:
    """Write the table on all tasks with its legend."""
    return "\n".join([table(rows, "all"), "", LEGEND.format(measure=measure.name)])


def table(rows: Sequence[Row], task: str) -> str:
    """Write a Markdown table with a row for each of the others."""
    drawn = Table("deployed rule beside", "", box=box.MARKDOWN)
    for title in ("cost %", "points"):
        drawn.add_column(title, justify="right")
    for row in rows:
        if row["task"] == task:
            kind = "one part changed" if row["kind"] == PART else row["kind"]
            drawn.add_row(row["other"], kind, percent(row, COST), percent(row, ACCURACY))
    return markdown(drawn)


def percent(row: Row, key: str) -> str:
    """Format a change with its interval."""
    names = (key, f"{key}_low", f"{key}_high")
    texts = ["not reached" if row[n] is None else f"{100 * row[n]:+.1f}" for n in names]
    return texts[0] if row[key] is None else "{} [{}, {}]".format(*texts)
