"""By how much results differ between the seeds of a router's training."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO
from statistics import fmean, stdev

from rich import box
from rich.console import Console
from rich.table import Table

from citer.data.tasks import task_label
from citer.evaluation.choice import Chosen
from citer.evaluation.measure import Measure
from citer.evaluation.methods import Row, label
from citer.report.standings import COSTS

NUMBERS = ("accuracy", "llm_fraction", "cost_b1", *COSTS)
TITLES = ("LLM fraction", "cost b1", "c95", "c99")
WIDTH = 250  # of the table's text, more than it needs
LEGEND = """\
Each of {seeds} seeds trains a router on the same labels, and validation chooses its rules. Mean ±
standard deviation over the seeds [least, largest], on test. The first seed's router is that of the
other tables.
"""


@dataclass(frozen=True)
class Seeds:
    """The seeds that an iteration trained: that of its router, and further ones."""

    router: int
    further: list[int]


@dataclass(frozen=True)
class Seeded:
    """The numbers of a method's chosen rule on a task, with the router of one seed."""

    seed: int
    task: str
    method: str
    rule: str
    numbers: Mapping[str, float | None]  # named as on disk; None: a cost that is not reached


@dataclass(frozen=True)
class Statistics:
    """They count only `seeds` with a number. The deviation is that of a sample, 0 for one seed."""

    seeds: int
    mean: float
    deviation: float
    least: float
    largest: float


@dataclass(frozen=True)
class Spread:
    """The statistics of each number of a method on a task, None if no seed has the number."""

    task: str
    method: str
    statistics: Mapping[str, Statistics | None]


def seeded(
    seed: int, standings: Iterable[Row], chosen: Chosen, measure: Measure
) -> Iterator[Seeded]:
    """Take the rows of the chosen rules from the standings of the router with this seed."""
    for row in standings:
        if row["method"] in chosen:
            numbers = measure.keys({name: row[name] for name in NUMBERS})
            rule = str(chosen[row["method"]].rule)
            yield Seeded(seed, row["task"], row["method"], rule, numbers)


def spreads(found: Sequence[Seeded]) -> Iterator[Spread]:
    """Summarise the seeds, by task and method."""
    for task, method in dict.fromkeys((each.task, each.method) for each in found):
        own = [each.numbers for each in found if (each.task, each.method) == (task, method)]
        yield Spread(
            task, method, {name: _statistics(each[name] for each in own) for name in own[0]}
        )


def _statistics(values: Iterable[float | None]) -> Statistics | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    deviation = stdev(known) if len(known) > 1 else 0.0
    return Statistics(len(known), fmean(known), deviation, min(known), max(known))


def spread_table(found: Sequence[Seeded], measure: Measure) -> str:
    """Write a Markdown table of `spreads`, with a legend."""
    seeds = len({each.seed for each in found})
    table = Table("task", "method", box=box.MARKDOWN)
    for title in (f"{measure.name} %", *TITLES):
        table.add_column(title, justify="right")
    for row in spreads(found):
        cells = (_cell(row.statistics[measure.key(name)], name, seeds) for name in NUMBERS)
        table.add_row(task_label(row.task), label(row.method), *cells)
    text = StringIO()
    Console(file=text, width=WIDTH).print(table)
    return f"{text.getvalue().strip()}\n\n{LEGEND.format(seeds=seeds)}"


def _cell(numbers: Statistics | None, name: str, seeds: int) -> str:
    if numbers is None:
        return "not reached"
    scale, digits = (100, 1) if name == "accuracy" else (1, 3)
    shown = (numbers.mean, numbers.deviation, numbers.least, numbers.largest)
    mean, deviation, least, largest = (f"{scale * number:.{digits}f}" for number in shown)
    few = f" ({numbers.seeds} of {seeds} seeds)" if numbers.seeds < seeds else ""
    return f"{mean} ± {deviation} [{least}, {largest}]{few}"
