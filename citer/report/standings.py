"""The methods side by side on test: as rows, as metrics, and as a table for people."""

from collections.abc import Container, Iterator, Mapping, Sequence
from io import StringIO

from rich import box
from rich.console import Console
from rich.table import Table

from citer.data.tasks import task_label
from citer.data.tasks.grading import Failures
from citer.evaluation.choice import Chosen, ChosenRule, deployed
from citer.evaluation.measure import GREEDY, Conditions, Measure
from citer.evaluation.methods import MODELS, Kind, Row, label, styles
from citer.evaluation.metrics import fraction_for
from citer.evaluation.points import rule_columns
from citer.rule import LLM, Rule

OURS = (Kind.ROUTER, Kind.AUDITED, Kind.POLICY)
SHARE = 0.95
AT_SHARE = "llm_fraction_for_95_percent"  # of the LLM's accuracy, or fidelity
COSTS = {"cost_for_95_percent": 0.95, "cost_for_99_percent": 0.99}  # of the same
IDENTITY = (
    *("kind", "colour", "marker"),
    *("split", "method", "task", *rule_columns(LLM), "questions"),
    *("accuracy_low", "accuracy_high"),
)
FOREMOST = ("accuracy", "mean_share", "llm_fraction", "cost_b1", *COSTS)
WIDTH = 250  # of a table's text, more than it needs
LEGEND = """\
Test questions, with Wilson's 95 % interval. Cost: bytes that all forwards move, relative to the LLM
alone, at batch 1, 8, …; in brackets with the LLM delayed until half of the batch needs it. Visits:
calls of the LLM per token. Tokens: per answer. f95: the LLM fraction that reaches 95 % of the LLM's
{measure}. c95, c99: the cost at batch 1 that reaches 95 % and 99 % of it. All three are read
linearly between points.
"""
LOCKSTEP, LOCKSTEP_LEGEND = "lockstep", "The last in brackets: in lockstep, as vLLM drafts.\n"
SHARE_LEGEND = "Share: the mean share of the answers; accuracy counts whole answers only.\n"


def frontier(points: Sequence[Row], method: str, task: str = "all") -> list[Row]:
    """Sort a method's points by LLM fraction, from the SLM alone (τ = 0) to the LLM (τ = 1)."""
    return sorted(
        _points(points, {method, *MODELS}, task),
        key=lambda point: (point["llm_fraction"], point["threshold"]),
    )


def efficient(points: Sequence[Row], method: str, task: str = "all") -> list[Row]:
    """Keep the points more accurate than all cheaper ones at batch 1, the models alone included."""
    line: list[Row] = []
    own = _points(points, {method, *MODELS}, task)
    for point in sorted(own, key=lambda point: point["cost_b1"]):
        if not line or point["accuracy"] > line[-1]["accuracy"]:
            line.append(point)
    return line


def _points(points: Sequence[Row], methods: Container[str], task: str) -> list[Row]:
    return [p for p in points if p["method"] in methods and p["task"] == task]


def standings(points: Sequence[Row], chosen: Chosen) -> list[Row]:
    """Return one row per task and method.

    The order is: the models alone, the methods of the iterations, known methods, bounds. The kind
    of a method decides which rule its row shows (see `Kind`). `chosen` has a rule for each method
    that is no bound.
    """
    tasks = sorted({point["task"] for point in points})
    return [row for task in tasks for row in _standings(points, chosen, task)]


def _standings(points: Sequence[Row], chosen: Chosen, task: str) -> Iterator[Row]:
    kinds = {method: style.kind for method, style in styles(points).items()}
    (llm,) = _points(points, {"llm"}, task)
    for method in _of_kind(kinds, Kind.ALONE):
        yield from _points(points, {method}, task)
    at_rule = {m: chosen_point(points, m, each.rule, task) for m, each in chosen.items()}
    for method in _of_kind(kinds, *OURS, Kind.EXACT, Kind.RIVAL):
        own: Row = {"method": method, "kind": kinds[method]}
        yield at_rule[method] | own | _readings(points, method, task, llm)
    near = at_rule[deployed(chosen)]["llm_fraction"]
    for method in _of_kind(kinds, Kind.BOUND):
        tried = _points(points, {method}, task)
        nearest = min(tried, key=lambda point: abs(point["llm_fraction"] - near))
        yield nearest | _readings(points, method, task, llm)


def _of_kind(kinds: Mapping[str, Kind], *wanted: Kind) -> list[str]:
    return [method for kind in wanted for method, own in kinds.items() if own == kind]


def chosen_point(points: Sequence[Row], method: str, rule: Rule, task: str = "all") -> Row:
    """Return a method's point for this rule, which may be the rule of a model alone."""
    own, wanted = _points(points, {method, *MODELS}, task), rule_columns(rule)
    return next(point for point in own if point.items() >= wanted.items())


def _readings(points: Sequence[Row], method: str, task: str, llm: Row) -> Row:
    """Return the LLM fraction and the costs that reach shares of the LLM's accuracy."""

    def least(column: str, share: float, line: Sequence[Row]) -> float | None:
        values, accuracies = ([point[name] for point in line] for name in (column, "accuracy"))
        return fraction_for(share * llm["accuracy"], values, accuracies)

    cheap = efficient(points, method, task)
    fraction = least("llm_fraction", SHARE, frontier(points, method, task))
    return {AT_SHARE: fraction} | {n: least("cost_b1", s, cheap) for n, s in COSTS.items()}


def metrics(rows: Sequence[Row], chosen: Chosen, measure: Measure) -> dict[str, Row]:
    """Arrange standings as `method.metric`, and `FOREMOST` also as `method.task.metric`.

    The share of correct answers has the name of the measure.
    """
    results: dict[str, Row] = {row["method"]: {} for row in rows}
    for row in rows:
        if row["task"] == "all":
            of_all = {name: row[name] for name in row if _is_metric(name, row)}
            results[row["method"]] |= measure.keys(of_all)
        else:
            of_task = {name: row[name] for name in FOREMOST if name in row and _tells(name, row)}
            results[row["method"]][task_label(row["task"])] = measure.keys(of_task)
    for method, each in chosen.items():
        at, audit = each.rule.at, each.rule.audit
        results[method] |= {"at": at, "audit": audit, "discordant_bound": each.bound}
    return results


def _is_metric(name: str, row: Row) -> bool:
    """Return whether a column is a metric. Bytes are one at batch 1 only."""
    is_wanted = name == "bytes_per_answer_b1" or not name.startswith("bytes_per_answer")
    return is_wanted and name not in IDENTITY and _tells(name, row)


def _tells(name: str, row: Row) -> bool:
    """Return whether a metric tells something. The mean share does if it is not the accuracy."""
    return name != "mean_share" or row["mean_share"] != row["accuracy"]


def summary(
    rows: Sequence[Row],
    chosen: Chosen,
    sizes: Sequence[int],
    conditions: Conditions,
    failed: Sequence[Failures] = (),
) -> str:
    """Write standings as a Markdown table with a legend, the promises and the graders' failures.

    `sizes` are the batch sizes whose costs are shown.
    """
    measure = conditions.measure
    promises = (promise(*each, measure) for each in chosen.items())
    notes = [f"- {each}" for each in promises] + [f"- {each}." for each in failed]
    legend = LEGEND.format(measure=measure.name) + measure.legend
    if conditions.sampling != GREEDY:
        legend += f"All methods sample: {conditions.sampling}.\n"
    legend += SHARE_LEGEND * _has_shares(rows)
    legend += LOCKSTEP_LEGEND * any(name.endswith(LOCKSTEP) for name in rows[0])
    table = standings_table(rows, sizes, measure)
    return "\n".join([table, "", legend, *_places(rows), "", *notes, ""])


def markdown(table: Table) -> str:
    text = StringIO()
    Console(file=text, width=WIDTH).print(table, markup=False)
    return text.getvalue().strip()


def _has_shares(rows: Sequence[Row]) -> bool:
    return any(_tells("mean_share", row) for row in rows)


def _places(rows: Sequence[Row]) -> Iterator[str]:
    """Yield sentences that tell at which rule the methods are shown."""
    kinds = {row["method"]: Kind(row["kind"]) for row in rows}
    places = {
        (*OURS, Kind.EXACT, Kind.RIVAL): "at the rule that validation chose",
        (Kind.BOUND,): "at the tried rule nearest to the cheapest chosen one in LLM fraction, as "
        "bounds, since they are no candidates",
    }
    for group, place in places.items():
        if methods := _of_kind(kinds, *group):
            yield f"Shown {place}: {', '.join(map(label, methods))}."


def standings_table(rows: Sequence[Row], sizes: Sequence[int], measure: Measure) -> str:
    table = Table("task", "method", box=box.MARKDOWN)
    costs = (f"cost b{n}" for n in sizes)
    shares = ["share"] * _has_shares(rows)
    titles = (measure.name, *shares, "LLM fraction", "visits", *costs, "tokens")
    for title in (*titles, "f95", "c95", "c99"):
        table.add_column(title, justify="right")
    for row in rows:
        table.add_row(
            task_label(row["task"]),
            label(row["method"]),
            f"{row['accuracy']:.1%} {interval(row)}",
            *(f"{row['mean_share']:.1%}" for _ in shares),
            f"{row['llm_fraction']:.3f}",
            f"{row['visits_per_token']:.3f}",
            *(_cost(row, size) for size in sizes),
            f"{row['tokens_per_answer']:.1f}",
            *("" if row.get(name) is None else f"{row[name]:.3f}" for name in (AT_SHARE, *COSTS)),
        )
    return markdown(table)


def _cost(row: Row, size: int) -> str:
    columns = (f"cost_b{size}{schedule}" for schedule in ("", "_delayed", f"_{LOCKSTEP}"))
    plain, *shared = [f"{row[name]:.3f}" for name in columns if name in row]
    return f"{plain} ({', '.join(shared)})" if shared else plain


def interval(row: Row) -> str:
    """Return the 95 % interval of a row's accuracy."""
    return f"[{100 * row['accuracy_low']:.1f}, {100 * row['accuracy_high']:.1f}]"


def promise(method: str, chosen: ChosenRule, measure: Measure) -> str:
    """Return a sentence with the promise of a method's chosen rule."""
    risk, sure = measure.risk, f"confidence {1 - chosen.delta:.3g}"
    if not chosen.certified:
        return (
            f"{label(method)}: no rule cheaper than the LLM keeps {risk} <= "
            f"{chosen.epsilon:g} at {sure}; the LLM answers alone."
        )
    seen = measure.on_validation.format(n=chosen.n, lost=chosen.discordant)
    kept = f"{label(method)}: `{chosen.rule:.4g}` keeps {risk} <= {chosen.epsilon:g}"
    if chosen.rule.exact:
        ties = ", by near ties in half precision" * bool(chosen.discordant)
        return f"{kept}: its answers are the LLM's own (on validation {seen}{ties})."
    return f"{kept} at {sure} (on validation {seen}; bound of this rule alone: {chosen.bound:.3f})."
