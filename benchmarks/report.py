"""Time methods in turn, and report what was found: tables, and JSON that describes the machine.

Other load on the machine then slows all methods alike.
"""

import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
import transformers
import typer

from citer.cli.main import BAD_INPUT, refuse
from citer.errors import InputError
from citer.progress import progress
from citer.storage.tables import read_json, write_json, write_text

ROUNDS = 3  # at least
SECONDS = 10.0  # short methods are repeated for this long
MOST_ROUNDS = 30

RESULTS = Path("benchmarks/results")

Method = Callable[[], float]  # runs once and returns the amount of work: tokens, bytes, runs


@dataclass(frozen=True)
class Race:
    """Each method's amount of work per second, round by round."""

    speeds: Mapping[str, list[float]]

    def speed(self, name: str) -> float:
        return median(self.speeds[name])

    def ratio(self, name: str, other: str) -> float:
        """Return how many times faster `name` is than `other`: the median of the rounds' ratios."""
        rounds = zip(self.speeds[name], self.speeds[other], strict=True)
        return median(speed / slower for speed, slower in rounds)

    def details(self) -> dict[str, float]:
        return {f"{name} tokens/s": self.speed(name) for name in self.speeds}


def race(title: str, methods: Mapping[str, Method]) -> Race:
    """Run each method once per round: at least three rounds, more if the methods are short."""
    speeds: dict[str, list[float]] = {name: [] for name in methods}
    started = time.perf_counter()
    with progress(title, None, "runs") as advance:
        for n in range(MOST_ROUNDS):
            if n >= ROUNDS and time.perf_counter() - started > SECONDS:
                break
            for name, method in methods.items():
                speeds[name].append(_speed(method))
                advance(1)
    return Race(speeds)


def _speed(method: Method) -> float:
    _wait_for_device()
    started = time.perf_counter()
    amount = method()
    _wait_for_device()
    return amount / (time.perf_counter() - started)


def _wait_for_device() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


class Finding(NamedTuple):
    """A measured ratio. `details` holds the figures from which it was computed."""

    row: str
    what: str
    pair: str
    value: float
    details: Mapping[str, float] = {}


def add_to_report(path: Path, finding: Finding) -> None:
    """Add a finding to a JSON report, in place of an earlier one with the same name."""
    known = read_json(path) if path.exists() else []
    found = [*known, finding._asdict() | {"machine": machine()}]
    named = {(each["row"], each["pair"], each["what"]): each for each in found}
    write_json(path, [named[name] for name in sorted(named)])


def print_report(findings: Sequence[Finding]) -> None:
    rows = [each._asdict() for each in findings]
    for row in rows:
        details = (f"{name} {_shown(value)}" for name, value in row["details"].items())
        row |= {"value": _shown(row["value"]), "details": ", ".join(details)}
    print(markdown(rows))
    print(", ".join(f"{name} {value}" for name, value in machine().items()))


def _shown(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def machine() -> dict[str, Any]:
    """Describe the machine and the library versions on which the figures were measured."""
    described = {
        "date": date.today().isoformat(),
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    if torch.cuda.is_available():
        described["gpu"] = torch.cuda.get_device_name()
    return described


def _cpu_model() -> str:
    """Return the CPU's name from /proc/cpuinfo, or from `platform` if that is missing."""
    known = Path("/proc/cpuinfo")
    for line in known.read_text().splitlines() if known.exists() else ():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as a table; each has a cell for each key of the first.

    A triple is a value with its interval. Numbers below a heading with "above" have their sign.
    """
    heads = [[*row] for row in rows[:1]]
    lines = [[_cell(value, name) for name, value in row.items()] for row in rows]
    table = [*heads, *(["---"] * len(head) for head in heads), *lines]
    return "".join(f"| {' | '.join(line)} |\n" for line in table)


def _cell(value: Any, name: str) -> str:
    if value is None:
        return ""
    sign = "+" if "above" in name else ""
    if isinstance(value, float):
        return f"{value:{sign}.3f}"
    if isinstance(value, list | tuple):
        middle, low, high = (f"{number:{sign}.4f}" for number in value)
        return f"{middle} [{low}, {high}]"
    return str(value)


def command(main: Callable[..., None]) -> None:
    """Run a module's command. Bad input ends it with one line and status 2."""
    try:
        typer.run(main)
    except InputError as error:
        raise SystemExit(refuse(str(error), BAD_INPUT)) from None


def write_results(target: Path, content: Any, text: str) -> None:
    """Write a study's JSON and its Markdown, and print the latter."""
    write_json(target.with_suffix(".json"), content)
    write_text(target.with_suffix(".md"), text)
    print(text)
