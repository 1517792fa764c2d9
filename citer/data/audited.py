"""Turn answers served earlier into problems.

Their tables are written by `citer generate --disagreements`, or by a server into a folder.
"""

import hashlib
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console

from citer.data.problems import Problem, as_problem
from citer.errors import InputError
from citer.storage.schema import AUDITED
from citer.storage.tables import read_table

# The β by which tokens are judged, whatever the β by which the answers were served: all odds are
# known. At β = 1 a label would say that the LLM writes the same token, which routes too much to it.
LEAST_ODDS = 0.1


def load_audited(path: Path, tasks: Collection[str]) -> list[Problem]:
    """Return a problem for each complete answer with an audit, and print how many are left out.

    The answer is the reference. A token counts as kept if its odds are at least `LEAST_ODDS`.
    Raises InputError like `read_served`.
    """
    table = read_served(path, tasks)
    complete = table.filter(pc.invert(table["truncated"]))
    audited = complete.filter(pc.greater(pc.list_value_length(complete["audited"]), 0))
    cut, bare = len(table) - len(complete), len(complete) - len(audited)
    text = f"{path}: {len(audited):,} answers; left out: {cut:,} truncated, {bare:,} without audits"
    Console().print(text, markup=False, highlight=False, soft_wrap=True)
    return [_problem(row, path.name) for row in audited.to_pylist()]


def read_served(path: Path, tasks: Collection[str]) -> pa.Table:
    """Read a table of the schema AUDITED, or all those of a folder, as one.

    A folder may have none yet. Raises InputError if a file is no such table, or if one of its tasks
    is not in `tasks`.
    """
    files = sorted(path.glob("[!.]*.parquet")) if path.is_dir() else [path]
    tables = [_read(file, tasks) for file in files]
    return pa.concat_tables([AUDITED.empty_table(), *tables])


def _read(path: Path, tasks: Collection[str]) -> pa.Table:
    try:
        table = read_table(path, AUDITED).replace_schema_metadata()
    except InputError as error:
        raise InputError(f"{error} (a table of `citer generate --disagreements`)") from None
    for row, task in enumerate(table["task"].to_pylist(), 1):
        if task not in tasks:
            expected = f"expected {' or '.join(tasks)}, the tasks of the other sources"
            raise InputError(f"{path}: row {row}: task {task!r}: {expected}")
    return table


def _problem(row: dict[str, Any], source: str) -> Problem:
    """Return the problem of a row. Another answer to the same question is another problem."""
    token_ids = row["token_ids"]
    answer_key = hashlib.sha256(str(token_ids).encode()).hexdigest()[:8]
    asked = {name: row[name] for name in ("task", "question", "choices", "messages", "answer")}
    return as_problem(
        asked
        | {
            "problem_id": f"{row['problem_id']}.{answer_key}",
            "reference": row["completion"],
            "token_ids": token_ids,
            "audits": _audits(row),
            "source": source,
            "split": "",
        }
    )


def _audits(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Judge the SLM's token at each audited position. It stands in the answer, or was rejected."""
    found = {each["position"]: each for each in row["disagreements"]}
    agreed = [(position, position not in found) for position in row["audited"]]
    return [
        {
            "position": position,
            "slm_token": row["token_ids"][position] if same else found[position]["slm_token"],
            "kept": same or found[position]["odds"] >= LEAST_ODDS,
        }
        for position, same in agreed
    ]
