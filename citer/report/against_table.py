"""The comparison with the rivals for people: a Markdown table, and a sentence about each rival."""

from collections.abc import Collection

from rich import box
from rich.table import Table

from citer.data.tasks import task_label
from citer.evaluation.measure import Measure
from citer.evaluation.methods import Row, label
from citer.report.against import ACCURACY, AREA, COST, Comparison, rival_label
from citer.report.standings import markdown

LEGEND = """\
Cost: how many percent more bytes our rule moves at batch 1 than the rival, at the {measure} of our
rule. Points: by how many percentage points the {measure} of our rule is above the rival's, at the
cost of our rule. Area, of all rules of a method: 0 is the straight line from the SLM to the LLM, 1
the LLM's {measure} at the SLM's cost.
Validation chose our rules. A rival may use any of its rules, or mix two of them by question; it is
read on test, which favours it. In brackets: 95 % intervals of a paired bootstrap over questions,
each for itself. Not reached: neither the rival nor a model alone has the {measure} of our rule
(cost), or is as cheap (points). Rivals that learn have heads as wide as the router's: a narrower
head may cost less.
"""


def summary(comparison: Comparison, method: str, measure: Measure) -> str:
    """Write the comparison on all tasks, with a sentence about each rival beside `method`."""
    legend = LEGEND.format(measure=measure.name)
    sentences = [f"- {sentence(row, measure)}" for row in comparison.on_all(method)]
    return "\n".join([table(comparison, {"all"}), "", legend, *sentences, ""])


def table(comparison: Comparison, tasks: Collection[str]) -> str:
    """Write a Markdown table with a row for each of these tasks and each method."""
    ours = list(dict.fromkeys(row["method"] for row in comparison.against))
    drawn = Table("task", "method", box=box.MARKDOWN)
    titles = (f"{title}, {label(name)}" for title in ("cost %", "points") for name in ours)
    for title in ("area", *titles):
        drawn.add_column(title, justify="right")
    for row in comparison.areas:
        if row["task"] in tasks:
            names = task_label(row["task"]), label(row["method"])
            place = row["task"], row["method"]
            rows = (r for r in comparison.against if (r["task"], r["rival"]) == place)
            beside = {r["method"]: r for r in rows}  # none if the row is ours
            cells = (_percent(beside.get(name), key) for key in (COST, ACCURACY) for name in ours)
            drawn.add_row(*names, _shown(row, AREA, "{:.3f}"), *cells)
    return markdown(drawn)


def sentence(row: Row, measure: Measure) -> str:
    """Say who is cheaper at equal accuracy, and who is more accurate at equal cost."""
    ours = label(row["method"])
    rival = rival_label(row)
    if row[COST] is None:
        cost = f"{rival} does not reach the {measure.name} of {ours}"
    else:
        change = _percent(row, COST)
        cost = f"{ours} {_verdict(row)} {rival}: {change} % of cost at equal {measure.name}"
    if row[ACCURACY] is None:
        return f"{cost}; {rival} is never as cheap."
    return f"{cost}; {_percent(row, ACCURACY)} points of {measure.name} at equal cost."


def _verdict(row: Row) -> str:
    """Compare two costs. If an end is missing, the rival's cost has no limit there."""
    low, high = row[f"{COST}_low"], row[f"{COST}_high"]
    if high is None or high < 0:
        return "is cheaper than"
    if low is not None and low > 0:
        return "is dearer than"
    return "is neither cheaper nor dearer, within the interval, than"


def _percent(row: Row | None, key: str) -> str:
    return _shown(row, key, "{:+.1f}", 100) if row else ""


def _shown(row: Row, key: str, form: str, scale: float = 1) -> str:
    names = (key, f"{key}_low", f"{key}_high")
    texts = ["not reached" if row[n] is None else form.format(scale * row[n]) for n in names]
    return texts[0] if row[key] is None else "{} [{}, {}]".format(*texts)
