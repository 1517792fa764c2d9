"""`citer bench`: the rows, the pairs on which each is measured, and how they are run."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from transformers.utils import logging

from benchmarks import decode
from benchmarks.pairs import Subject, make_subject, pair_names
from benchmarks.report import Finding, add_to_report, print_report
from citer.errors import InputError
from citer.storage.tables import check_target

CPU = ("cpu-fp32", "cpu-bf16")
ALL = ("embedded", *CPU, "gpu")
Measure = Callable[[Subject], list[Finding]]


class Row(NamedTuple):
    """A row of the table in README.md: number, name, function that measures it, pairs."""

    number: int
    name: str
    measure: Measure
    pairs: Sequence[str]


ROWS = (
    Row(1, "floor", decode.against_floor, (*CPU, "gpu")),
    Row(2, "embedded-floor", decode.against_embedded_floor, ("embedded",)),
    Row(3, "alone", decode.against_llm, ALL),
    Row(5, "batches", decode.against_batches, ("cpu-bf16", "gpu")),
    Row(11, "graphs", decode.against_bytes, ("gpu",)),
)


def run(requested: Sequence[str], pairs: Sequence[str], threads: int | None, out: Path) -> None:
    """Measure the requested rows on the requested pairs, print them, and write them to `out`.

    Without `requested` all rows are measured; without `pairs`, each row on its own pairs. Findings
    of other rows stay in `out`. Raises InputError for an unknown row or pair, and if no requested
    row is measured on a requested pair.
    """
    rows = choose_rows(requested)
    plan = {name: [row for row in rows if name in row.pairs] for name in choose_pairs(pairs)}
    if not any(plan.values()):
        raise InputError(f"bench: {', '.join(requested)}: not measured on {', '.join(plan)}")
    check_target(out)
    logging.set_verbosity_error()
    if threads:
        torch.set_num_threads(threads)
    findings = []
    for name, planned in plan.items():
        for finding in _measure(name, planned) if planned else ():
            add_to_report(out, finding)  # now, because the next row may take an hour
            findings.append(finding)
    print_report(findings)


def choose_rows(requested: Sequence[str]) -> list[Row]:
    known = {key: row for row in ROWS for key in (str(row.number), row.name)}
    for key in requested:
        if key not in known:
            raise InputError(f"bench: no row {key!r}; expected {', '.join(known)}")
    return [row for row in ROWS if not requested or {str(row.number), row.name} & {*requested}]


def choose_pairs(requested: Sequence[str]) -> list[str]:
    available = pair_names()
    for name in requested:
        if name not in available:
            raise InputError(f"bench: no pair {name!r} here; expected {', '.join(available)}")
    return [name for name in available if not requested or name in requested]


def _measure(name: str, rows: Sequence[Row]) -> Iterator[Finding]:
    subject = make_subject(name)
    for row in rows:
        yield from row.measure(subject)
