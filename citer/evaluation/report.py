"""What a person reads: the methods side by side on test, the routers at their chosen τ."""

from collections.abc import Container, Iterator, Sequence
from io import StringIO

from rich import box
from rich.console import Console
from rich.table import Table

from citer.evaluation.metrics import fraction_for, value_at
from citer.evaluation.points import Row, rule_columns
from citer.evaluation.threshold import Chosen, Threshold
from citer.rule import Rule

ENDS = ("slm", "llm")
BY_CHANCE_OR_ENTROPY = ("random", "entropy")
SPECULATIVE = "speculative"
AUDITED = "audited"  # `audited_2`: by the second iteration's router
SHARE = 0.95
AT_SHARE = "llm_fraction_for_95_percent"  # of the LLM's accuracy
COSTS = {"cost_for_95_percent": 0.95, "cost_for_99_percent": 0.99}  # likewise
IDENTITY = (
    *("split", "method", "task", "visit", "threshold", "audit", "questions"),
    *("accuracy_low", "accuracy_high"),
)
FOREMOST = ("accuracy", "llm_fraction", "cost_b1", *COSTS)
WIDTH = 200  # of the table's text: wider than it gets
LEGEND = """\
Test questions; [Wilson's 95 % interval]. Cost: bytes moved by all forwards, the LLM alone being 1,
at batch 1, 8, …; (with the LLM delayed until half the batch needs it). Visits: of the LLM, a token.
Tokens: per answer. f95: the LLM fraction for 95 % of the LLM's accuracy; c95, c99: the cost at
batch 1 for 95 % and 99 % of it. Random and entropy stand at the LLM fraction of {last},
speculative decoding at its cheapest γ; all but what stands at a rule of its own is read linearly
between points.
"""


def frontier(points: Sequence[Row], method: str, task: str = "all") -> list[Row]:
    """A method's points by LLM fraction, from the SLM alone (τ = 0) to the LLM (τ = 1)."""
    return sorted(
        _points(points, {method, *ENDS}, task),
        key=lambda point: (point["llm_fraction"], point["threshold"]),
    )


def efficient(points: Sequence[Row], method: str, task: str = "all") -> list[Row]:
    """Those of a method's points, and of the models alone, that nothing cheaper of it reaches."""
    line: list[Row] = []
    for point in sorted(_points(points, {method, *ENDS}, task), key=lambda point: point["cost_b1"]):
        if not line or point["accuracy"] > line[-1]["accuracy"]:
            line.append(point)
    return line


def _points(points: Sequence[Row], methods: Container[str], task: str) -> list[Row]:
    return [p for p in points if p["method"] in methods and p["task"] == task]


def standings(points: Sequence[Row], chosen: Chosen) -> list[Row]:
    """Both models, every method at its chosen rule, and the rivals.

    Chance and entropy, at the LLM fraction of the last method without audits (where there is one),
    are read linearly between their points, and have no interval of their own.
    """
    tasks = sorted({point["task"] for point in points})
    return [row for task in tasks for row in _standings(points, chosen, task)]


def _standings(points: Sequence[Row], chosen: Chosen, task: str) -> Iterator[Row]:
    slm, *_, llm = sorted(frontier(points, "llm", task), key=lambda point: point["threshold"])
    yield slm
    yield llm
    at_rule = {
        method: chosen_point(points, method, threshold.rule, task)
        for method, threshold in chosen.items()
    }
    for method, point in at_rule.items():
        yield point | {"method": method} | _readings(points, method, task, llm)
    speculative = _points(points, {SPECULATIVE}, task)
    if speculative:
        best = min(speculative, key=lambda point: point["cost_b1"])
        yield best | _costs(points, SPECULATIVE, task, llm)
    for method in BY_CHANCE_OR_ENTROPY:
        line = frontier(points, method, task)
        found = {"method": method, "task": task} | _readings(points, method, task, llm)
        yield found | _read_at(at_rule[_last(chosen)]["llm_fraction"], line)


def _last(chosen: Chosen) -> str:
    """The last method without audits; the last of all, where every one audits."""
    unaudited = [method for method in chosen if not method.startswith(AUDITED)]
    return (unaudited or list(chosen))[-1]


def chosen_point(points: Sequence[Row], method: str, rule: Rule, task: str = "all") -> Row:
    """A method's point by this rule, which may be that of a model alone."""
    wanted = rule_columns(rule)
    return next(p for p in _points(points, {method, *ENDS}, task) if p.items() >= wanted.items())


def _readings(points: Sequence[Row], method: str, task: str, llm: Row) -> Row:
    line = frontier(points, method, task)
    fractions, accuracies = _column(line, "llm_fraction"), _column(line, "accuracy")
    target = SHARE * llm["accuracy"]
    fraction = fraction_for(target, fractions, accuracies)
    return {AT_SHARE: fraction} | _costs(points, method, task, llm)


def _costs(points: Sequence[Row], method: str, task: str, llm: Row) -> Row:
    line = efficient(points, method, task)
    costs, accuracies = _column(line, "cost_b1"), _column(line, "accuracy")
    return {
        name: fraction_for(share * llm["accuracy"], costs, accuracies)
        for name, share in COSTS.items()
    }


def _read_at(fraction: float, line: Sequence[Row]) -> Row:
    fractions = _column(line, "llm_fraction")
    names = [name for name in line[0] if name not in IDENTITY and line[0][name] is not None]
    return {name: value_at(fraction, fractions, _column(line, name)) for name in names}


def _column(line: Sequence[Row], name: str) -> list[float]:
    return [point[name] for point in line]


def metrics(rows: Sequence[Row], chosen: Chosen) -> dict[str, Row]:
    """Standings as `method.metric`, and the foremost of them as `method.task.metric`."""
    found: dict[str, Row] = {row["method"]: {} for row in rows}
    for row in rows:
        if row["task"] == "all":
            found[row["method"]] |= {name: row[name] for name in row if _is_metric(name)}
        else:
            of_task = {name: row[name] for name in FOREMOST if name in row}
            found[row["method"]][row["task"]] = of_task
    for method, threshold in chosen.items():
        at, bound = threshold.rule.at, threshold.bound
        found[method] |= {"at": at, "audit": threshold.rule.audit, "discordant_bound": bound}
    return found


def _is_metric(name: str) -> bool:
    """Bytes are told at batch 1 alone; at others the cost says it."""
    told = name == "bytes_per_answer_b1" or not name.startswith("bytes_per_answer")
    return told and name not in IDENTITY


def summary(rows: Sequence[Row], chosen: Chosen, sizes: Sequence[int]) -> str:
    """Standings for people, in Markdown; `sizes` are the batch sizes to show costs at."""
    text = StringIO()
    Console(file=text, width=WIDTH).print(_table(rows, sizes))
    legend = LEGEND.format(last=label(_last(chosen)))
    promises = [f"- {promise(*each)}" for each in chosen.items()]
    return "\n".join([text.getvalue().strip(), "", legend, *promises, ""])


def _table(rows: Sequence[Row], sizes: Sequence[int]) -> Table:
    table = Table("task", "method", box=box.MARKDOWN)
    costs = (f"cost b{n}" for n in sizes)
    for title in ("accuracy", "LLM fraction", "visits", *costs, "tokens", "f95", "c95", "c99"):
        table.add_column(title, justify="right")
    for row in rows:
        table.add_row(
            row["task"],
            label(row["method"]),
            _accuracy(row),
            f"{row['llm_fraction']:.3f}",
            f"{row['visits_per_token']:.3f}",
            *(_cost(row, size) for size in sizes),
            f"{row['tokens_per_answer']:.1f}",
            *("" if row.get(name) is None else f"{row[name]:.3f}" for name in (AT_SHARE, *COSTS)),
        )
    return table


def _accuracy(row: Row) -> str:
    if "accuracy_low" not in row:
        return f"{row['accuracy']:.1%}"
    low, high = 100 * row["accuracy_low"], 100 * row["accuracy_high"]
    return f"{row['accuracy']:.1%} [{low:.1f}, {high:.1f}]"


def _cost(row: Row, size: int) -> str:
    cost = f"{row[f'cost_b{size}']:.3f}"
    return cost if size == 1 else f"{cost} ({row[f'cost_b{size}_delayed']:.3f})"


def promise(method: str, threshold: Threshold) -> str:
    """What validation promises of a method at its rule, in a sentence."""
    risk, sure = "P(routed wrong | LLM right)", f"confidence {1 - threshold.delta:.3g}"
    if not threshold.certified:
        return (
            f"{label(method)}: no rule that is cheaper than the LLM keeps {risk} <= "
            f"{threshold.epsilon:g} at {sure}; the LLM answers alone."
        )
    seen = (
        f"{threshold.discordant} of the {threshold.n} validation questions that the LLM has right"
    )
    kept = f"keeps {risk} <= {threshold.bound:.3f} at {sure} ({seen})"
    return f"{label(method)}: `{threshold.rule:.4g}` {kept}."


def label(method: str) -> str:
    return method.upper() if method in ENDS else method.replace("_", " ")
