"""Turn traffic into problems: the questions of answers that a server logged into a folder."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pyarrow as pa

from citer.data.problems import Problem, as_problem, question_key, seeded
from citer.errors import InputError
from citer.progress import say
from citer.storage.schema import AUDITED
from citer.storage.tables import read_table

TRAFFIC = "traffic"  # the source of such problems
ASKED = ("problem_id", "task", "question", "choices", "messages", "answer", "reference")


def read_served(folder: Path, tasks: Collection[str]) -> pa.Table:
    """Read all tables of a folder as one. There may be none yet.

    Raises InputError if a file is no table of the schema AUDITED, or if one of its tasks is not in
    `tasks`.
    """
    tables = [_read(file, tasks) for file in sorted(folder.glob("[!.]*.parquet"))]
    return pa.concat_tables([AUDITED.empty_table(), *tables])


def _read(path: Path, tasks: Collection[str]) -> pa.Table:
    try:
        table = read_table(path, AUDITED).replace_schema_metadata()
    except InputError as error:
        raise InputError(f"{error} (a table of `citer serve --log`)") from None
    for row, task in enumerate(table["task"].to_pylist(), 1):
        if task not in tasks:
            expected = f"expected {' or '.join(tasks)}, the tasks of the other sources"
            raise InputError(f"{path}: row {row}: task {task!r}: {expected}")
    return table


def load_traffic(folder: Path, tasks: Collection[str], most: int, seed: int) -> list[Problem]:
    """Return problems of at most `most` questions of the tables in a folder; print how many it has.

    They are chosen by a hash of the question and the seed. Of those with one `question_key`, one is
    taken that came with a right answer, else one that the LLM itself has answered. Raises
    InputError like `read_served`.
    """
    rows = read_served(folder, tasks).select([*ASKED]).to_pylist()
    # Sorted: which of several spellings is taken does not depend on the order of the files.
    problems = (_asked(row) for row in rows)
    spelled = sorted(problems, key=lambda p: (p.answer or "", p.reference or "", repr(p)))
    asked = {_key(problem): problem for problem in spelled}
    said = f"{folder}: {len(asked):,} questions in {len(rows):,} answers"
    for known, what in (("answer", "a right answer"), ("reference", "the LLM's own answer")):
        if number := sum(getattr(problem, known) is not None for problem in asked.values()):
            said += f", {number:,} with {what}"
    say(said)
    chosen = sorted(asked, key=lambda key: seeded(key, seed))[:most]
    return [asked[key] for key in chosen]


def _key(problem: Problem) -> str:
    choices = [(each.label, each.text) for each in problem.choices or ()]
    return f"{problem.task} {question_key(problem.conversation)} {choices}"


def _asked(row: dict[str, Any]) -> Problem:
    # The LLM's own answer may be wrong. Where that can be known, `references` asks it again.
    reference = (row["answer"] is None and row["reference"]) or None
    written = {"reference": reference, "written_by": "llm" if reference else None}
    return as_problem(row | written | {"source": TRAFFIC, "split": ""})
