"""Let units write the tables that they make."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from citer.executors.base import Executor, I, Job, Unit
from citer.progress import Advance
from citer.storage.tables import write_table


def write_tables(
    executor: Executor,
    job: Job[I, pa.Table],
    inputs: Mapping[Path, I],
    schema: pa.Schema,
    metadata: Mapping[str, Any],
    advance: Advance,
) -> None:
    """Run `job` on the inputs of each path, and write the table that it returns to the path."""
    to_file = partial(_to_file, job, schema, dict(metadata))
    units = [Unit(str(path), (path, each)) for path, each in inputs.items()]
    for _ in executor.run(to_file, units, advance):
        pass


def _to_file(
    job: Job[I, pa.Table],
    schema: pa.Schema,
    metadata: dict[str, Any],
    inputs: tuple[Path, I],
    advance: Advance,
) -> None:
    """Write the table that another job returns: a job of its own."""
    path, content = inputs
    write_table(path, job(content, advance=advance), schema, metadata)
