"""`citer bench`: which rows there are, on which pairs each is measured, and running them."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from rich.console import Console
from transformers.utils import logging

from benchmarks import decode, moved, scoring
from benchmarks.pairs import Subject, make_subject, pair_names
from benchmarks.report import Finding, Target, add_to_report, print_report
from citer.errors import InputError
from citer.io import check_target

CPU = ("cpu-fp32", "cpu-bf16")
ALL = ("embedded", *CPU, "gpu")


class Row(NamedTuple):
    """A row of the table of targets: number, name, what measures it, on which pairs."""

    number: int
    name: str
    measure: Callable[[Subject], list[Finding]]
    pairs: Sequence[str]


def _floor(subject: Subject) -> list[Finding]:
    return [decode.against_floor(subject, 1, batch, Target("≥", 0.9)) for batch in (1, 8)]


def _embedded_floor(subject: Subject) -> list[Finding]:
    return [decode.against_floor(subject, 2, 32, Target("≥", 0.75))]


def _batches(subject: Subject) -> list[Finding]:
    return [found for batch in (8, 32) for found in decode.against_batches(subject, batch)]


def _labelling(subject: Subject) -> list[Finding]:
    from benchmarks.labelling import against_per_token  # grading wants math-verify

    return [against_per_token(subject)]


def _memory(_: Subject) -> list[Finding]:
    from benchmarks.memory import growth

    return growth()


ROWS = (
    Row(1, "floor", _floor, (*CPU, "gpu")),
    Row(2, "embedded-floor", _embedded_floor, ("embedded",)),
    Row(3, "alone", decode.against_llm, ALL),
    Row(4, "naive", lambda subject: [decode.against_naive(subject)], CPU),
    Row(5, "batches", _batches, ("cpu-bf16", "gpu")),
    Row(6, "scoring", scoring.against_forwards, ALL),
    Row(7, "labelling", _labelling, ("embedded",)),
    Row(8, "sweep", lambda subject: [scoring.sweep_against_one(subject)], ("embedded",)),
    Row(9, "memory", _memory, ("embedded",)),
    Row(11, "graphs", lambda subject: [decode.against_bytes(subject)], ("gpu",)),
    Row(12, "audited", lambda subject: [moved.against_seconds(subject)], (*CPU, "gpu")),
)


def run(wanted: Sequence[str], pairs: Sequence[str], threads: int | None, out: Path) -> None:
    """Measure rows (all for none wanted) on pairs (each row's own); print and write them.

    What `out` holds of other rows stays.

    Raises InputError for a row or a pair that is not there, and where they do not meet.
    """
    rows = choose_rows(wanted)
    plan = {name: [row for row in rows if name in row.pairs] for name in choose_pairs(pairs)}
    if not any(plan.values()):
        raise InputError(f"bench: {', '.join(wanted)}: not measured on {', '.join(plan)}")
    check_target(out)
    logging.set_verbosity_error()
    if threads:
        torch.set_num_threads(threads)
    findings = []
    for name, mine in plan.items():
        for found in _measure(name, mine) if mine else ():
            add_to_report(out, found)  # at once: rows may take an hour each
            findings.append(found)
    print_report(findings, Console())


def choose_rows(wanted: Sequence[str]) -> list[Row]:
    known = {key: row for row in ROWS for key in (str(row.number), row.name)}
    for key in wanted:
        if key not in known:
            raise InputError(f"bench: no row {key!r}; expected {', '.join(known)}")
    return [row for row in ROWS if not wanted or {str(row.number), row.name} & {*wanted}]


def choose_pairs(wanted: Sequence[str]) -> list[str]:
    here = pair_names()
    for name in wanted:
        if name not in here:
            raise InputError(f"bench: no pair {name!r} here; expected {', '.join(here)}")
    return [name for name in here if not wanted or name in wanted]


def _measure(name: str, rows: Sequence[Row]) -> Iterator[Finding]:
    subject = make_subject(name)
    for row in rows:
        yield from row.measure(subject)
