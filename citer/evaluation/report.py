"""What a person reads: the methods side by side on test, the routers at their chosen τ."""

from collections.abc import Iterator, Mapping, Sequence
from io import StringIO

from rich import box
from rich.console import Console
from rich.table import Table

from citer.evaluation.metrics import fraction_for, value_at
from citer.evaluation.points import Row
from citer.evaluation.threshold import Threshold

ENDS = ("slm", "llm")
RIVALS = ("random", "entropy")
SHARE = 0.95
AT_SHARE = "llm_fraction_for_95_percent"  # of the LLM's accuracy
IDENTITY = ("split", "method", "task", "threshold", "questions", "accuracy_low", "accuracy_high")
FOREMOST = ("accuracy", "llm_fraction", "cost_b1")
WIDTH = 200  # of the table's text: wider than it gets
LEGEND = """\
Test questions; ± half the 95 % interval over questions. Cost: bytes moved by all forwards, the LLM
alone being 1, at batch 1, 8, …; in brackets with the LLM delayed until half the batch needs it.
Tokens: per answer. f95: the LLM fraction for 95 % of the LLM's accuracy. Random and entropy stand
at the LLM fraction of {last}; they and f95 are read linearly between points.
"""
Chosen = Mapping[str, Threshold]  # by the router's name among the methods


def frontier(points: Sequence[Row], method: str, task: str = "all") -> list[Row]:
    """A method's points on test by LLM fraction, from the SLM alone (τ = 0) to the LLM (τ = 1)."""
    wanted = {method, *ENDS}
    line = [
        p for p in points if p["method"] in wanted and (p["split"], p["task"]) == ("test", task)
    ]
    return sorted(line, key=lambda point: (point["llm_fraction"], point["threshold"]))


def standings(points: Sequence[Row], chosen: Chosen) -> list[Row]:
    """Both models, every router at its τ and, at the last router's LLM fraction, the rivals.

    A rival is read linearly between its points, and has no interval of its own.
    """
    tasks = sorted({point["task"] for point in points if point["split"] == "test"})
    return [row for task in tasks for row in _standings(points, chosen, task)]


def _standings(points: Sequence[Row], chosen: Chosen, task: str) -> Iterator[Row]:
    slm, *_, llm = sorted(frontier(points, "llm", task), key=lambda point: point["threshold"])
    yield slm
    yield llm
    for method, threshold in chosen.items():
        line = frontier(points, method, task)
        at_tau = next(point for point in line if point["threshold"] == threshold.tau)
        rate = at_tau["llm_fraction"]
        yield at_tau | {"method": method, AT_SHARE: _fraction_for_share(line, llm)}
    for method in RIVALS:
        line = frontier(points, method, task)
        found = {"method": method, "task": task, AT_SHARE: _fraction_for_share(line, llm)}
        yield found | _read_at(rate, line)


def _fraction_for_share(line: Sequence[Row], llm: Row) -> float | None:
    fractions, accuracies = _column(line, "llm_fraction"), _column(line, "accuracy")
    return fraction_for(SHARE * llm["accuracy"], fractions, accuracies)


def _read_at(fraction: float, line: Sequence[Row]) -> Row:
    fractions = _column(line, "llm_fraction")
    names = [name for name in line[0] if name not in IDENTITY]
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
            found[row["method"]][row["task"]] = {name: row[name] for name in FOREMOST}
    for method, threshold in chosen.items():
        found[method] |= {"tau": threshold.tau, "discordant_bound": threshold.bound}
    return found


def _is_metric(name: str) -> bool:
    """Bytes are told at batch 1 alone; at others the cost says it."""
    told = name == "bytes_per_answer_b1" or not name.startswith("bytes_per_answer")
    return told and name not in IDENTITY


def summary(rows: Sequence[Row], chosen: Chosen, sizes: Sequence[int]) -> str:
    """Standings for people, in Markdown; `sizes` are the batch sizes to show costs at."""
    text = StringIO()
    Console(file=text, width=WIDTH).print(_table(rows, sizes))
    legend = LEGEND.format(last=label([*chosen][-1]))
    promises = [f"- {promise(*each)}" for each in chosen.items()]
    return "\n".join([text.getvalue().strip(), "", legend, *promises, ""])


def _table(rows: Sequence[Row], sizes: Sequence[int]) -> Table:
    table = Table("task", "method", box=box.MARKDOWN)
    for title in ("accuracy", "LLM fraction", *(f"cost b{n}" for n in sizes), "tokens", "f95"):
        table.add_column(title, justify="right")
    for row in rows:
        table.add_row(
            row["task"],
            label(row["method"]),
            _accuracy(row),
            f"{row['llm_fraction']:.3f}",
            *(_cost(row, size) for size in sizes),
            f"{row['tokens_per_answer']:.1f}",
            f"{row[AT_SHARE]:.3f}" if AT_SHARE in row else "",
        )
    return table


def _accuracy(row: Row) -> str:
    if "accuracy_low" not in row:
        return f"{row['accuracy']:.1%}"
    return f"{row['accuracy']:.1%} ±{(row['accuracy_high'] - row['accuracy_low']) / 2:.1%}"


def _cost(row: Row, size: int) -> str:
    cost = f"{row[f'cost_b{size}']:.3f}"
    return cost if size == 1 else f"{cost} ({row[f'cost_b{size}_delayed']:.3f})"


def promise(method: str, threshold: Threshold) -> str:
    """What validation promises of a router at its τ, in a sentence."""
    risk, sure = "P(LLM right, routed wrong)", f"confidence {1 - threshold.delta:g}"
    if not threshold.certified:
        return (
            f"{label(method)}: no τ that is cheaper than the LLM keeps {risk} <= "
            f"{threshold.epsilon:g} at {sure}; at τ = 1 the LLM answers alone."
        )
    return (
        f"{label(method)}: τ = {threshold.tau:.4g} keeps {risk} <= {threshold.bound:.3f} at {sure}"
        f" ({threshold.discordant} of {threshold.n} validation questions)."
    )


def label(method: str) -> str:
    return method.upper() if method in ENDS else method.replace("_", " ")
