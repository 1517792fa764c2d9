"""Turn traffic into problems: answers served earlier, or their questions alone.

Their tables are written by `citer generate --disagreements`, or by a server into a folder.
"""

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from citer.data.problems import Audit, Problem, as_problem, question_key, seeded
from citer.errors import InputError
from citer.progress import say
from citer.storage.schema import AUDITED
from citer.storage.tables import read_table

# The β by which tokens are judged, whatever the β by which the answers were served: all odds are
# known. At β = 1 a label would say that the LLM writes the same token, which routes too much to it.
LEAST_ODDS = 0.1
ASKED = ("problem_id", "task", "question", "choices", "messages")


def load_audited(path: Path, tasks: Collection[str]) -> list[Problem]:
    """Return a problem for each complete answer with an audit, and print how many are left out.

    The answer is the reference. A token counts as kept if its odds are at least `LEAST_ODDS`.
    Raises InputError like `read_served`.
    """
    table = read_served(path, tasks)
    complete = table.filter(pc.invert(table["truncated"]))
    audited = complete.filter(pc.greater(pc.list_value_length(complete["audited"]), 0))
    cut, bare = len(table) - len(complete), len(complete) - len(audited)
    say(f"{path}: {len(audited):,} answers; left out: {cut:,} truncated, {bare:,} without audits")
    return [_answered(row, path.name) for row in audited.to_pylist()]


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


def load_traffic(folder: Path, tasks: Collection[str]) -> list[Problem]:
    """Return a problem for each question of the tables in a folder, and print how many there are.

    Questions that differ in case and white space only are one. Raises InputError if there is no
    folder, and like `read_served`.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: expected a folder of `citer serve --log`")
    rows = read_served(folder, tasks).select([*ASKED]).to_pylist()
    # Sorted: which of several spellings is taken does not depend on the order of the files.
    problems = (_asked(row, "traffic") for row in rows)
    spelled = sorted(problems, key=lambda problem: problem.conversation)
    asked = {_key(problem): problem for problem in spelled}
    say(f"{folder}: {len(asked):,} questions in {len(rows):,} answers")
    return [*asked.values()]


def sampled(problems: Sequence[Problem], most: int, seed: int) -> list[Problem]:
    """Return at most `most` of the problems, chosen by a hash of the question and the seed.

    A question that is chosen stays so while no more than `most` are there.
    """
    return sorted(problems, key=lambda problem: seeded(_key(problem), seed))[:most]


def _key(problem: Problem) -> str:
    choices = [(each.label, each.text) for each in problem.choices or ()]
    return f"{problem.task} {question_key(problem.conversation)} {choices}"


def _asked(row: dict[str, Any], source: str) -> Problem:
    unknown = dict.fromkeys(("reference", "answer", "written_by", "audits", "token_ids"))
    asked = {name: row[name] for name in ASKED}
    return as_problem(asked | unknown | {"source": source, "split": ""})


def _answered(row: dict[str, Any], source: str) -> Problem:
    """Return the problem of a row. Another answer to the same question is another problem."""
    token_ids, key = row["token_ids"], row["problem_id"]
    answer_key = hashlib.sha256(str(token_ids).encode()).hexdigest()[:8]
    return replace(
        _asked(row, source),
        problem_id=f"{key}.{answer_key}",
        reference=row["completion"],
        answer=row["answer"],
        audits=_audits(row),
        token_ids=tuple(token_ids),
    )


def _audits(row: dict[str, Any]) -> tuple[Audit, ...]:
    """Judge the SLM's token at each audited position. It stands in the answer, or was rejected."""
    found = {each["position"]: each for each in row["disagreements"]}
    audits = []
    for position in row["audited"]:
        other = found.get(position)
        slm_token = other["slm_token"] if other else row["token_ids"][position]
        audits.append(Audit(position, slm_token, not other or other["odds"] >= LEAST_ODDS))
    return tuple(audits)
