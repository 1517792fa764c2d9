"""Report findings: a table on the console, and JSON with a description of the machine."""

import operator
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import torch
import transformers
from rich.console import Console
from rich.table import Table

from benchmarks.race import Race
from citer.storage.tables import read_json, write_json

SIGNS = {"≥": operator.ge, "≤": operator.le, ">": operator.gt}


class Target(NamedTuple):
    """A bound that a value should meet, such as `≥ 0.90`."""

    sign: str
    bound: float

    def met(self, value: float) -> bool:
        return SIGNS[self.sign](value, self.bound)

    def __str__(self) -> str:
        return f"{self.sign} {self.bound:g}"


@dataclass(frozen=True)
class Finding:
    """A measured ratio. `details` holds the figures from which it was computed."""

    row: int
    what: str
    pair: str
    value: float
    target: Target | None = None
    details: Mapping[str, float] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        if self.target is None:
            return ""
        return "met" if self.target.met(self.value) else "missed"


def of_two(
    row: int, what: str, pair: str, timed: Race, target: Target, unit: str = "tokens"
) -> Finding:
    """Return a finding: how many times faster the first of two methods is than the second."""
    first, second = timed.speeds
    return Finding(row, what, pair, timed.ratio(first, second), target, timed.details(unit))


def add_to_report(path: Path, finding: Finding) -> None:
    """Add a finding to a JSON report, in place of an earlier one with the same name."""
    report = read_json(path) if path.exists() else []
    new = _as_json(finding)
    kept = [old for old in report if _name(old) != _name(new)]
    write_json(path, sorted([*kept, new], key=_name))


def _name(finding: dict[str, Any]) -> tuple[int, str, str]:
    return finding["row"], finding["pair"], finding["what"]


def _as_json(finding: Finding) -> dict[str, Any]:
    return {
        "row": finding.row,
        "what": finding.what,
        "pair": finding.pair,
        "value": _rounded(finding.value),
        "target": str(finding.target) if finding.target else None,
        "verdict": finding.verdict or None,
        "details": {name: _rounded(value) for name, value in finding.details.items()},
        "machine": machine(),
    }


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def print_report(findings: Sequence[Finding], console: Console) -> None:
    table = Table("row", "what", "pair", title="Bench")
    for heading in ("value", "target"):
        table.add_column(heading, justify="right")
    table.add_column("")
    table.add_column("from")
    for finding in findings:
        details = "\n".join(f"{name} {_shown(value)}" for name, value in finding.details.items())
        figures = _shown(finding.value), str(finding.target or ""), finding.verdict, details
        table.add_row(str(finding.row), finding.what, finding.pair, *figures)
    console.print(table)
    console.print(", ".join(f"{name} {value}" for name, value in machine().items()))


def _shown(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def machine() -> dict[str, Any]:
    """Describe the machine and the library versions on which the figures were measured."""
    described = {
        "date": date.today().isoformat(),
        "cpu": _cpu_model(),
        "cores": len(_cores()),
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


def _cores() -> set[int]:
    """Return the cores on which this process may run."""
    return (
        os.sched_getaffinity(0)
        if hasattr(os, "sched_getaffinity")
        else set(range(os.cpu_count() or 1))
    )
