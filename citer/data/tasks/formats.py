"""Formats of raw rows: how a format is recognised, and how its rows become the task's own."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from citer.data.tasks.rows import Requires

Row = dict[str, Any]


class Format(NamedTuple):
    """A shape of raw rows, such as that of a published benchmark.

    `signs` says by which fields the format is recognised, and `fits` decides it. `rewrite` turns a
    raw row into a row of the task; it raises RowError. `fields` maps a field of the task's row to
    the raw field that it is made from, for the errors of the task's own checks.
    """

    name: str
    signs: str
    fits: Callable[[Row], bool]
    rewrite: Callable[[Row, Requires], Row]
    fields: Mapping[str, str] = {}


def given(row: Row, *fields: str) -> bool:
    """Return whether a row has each of the fields, neither null nor empty."""
    return all(row.get(field) not in (None, "") for field in fields)
