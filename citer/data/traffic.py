"""Turn the questions of served answers into problems without a reference and without an answer."""

import hashlib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from citer.data.audited import read_served
from citer.data.problems import Problem, as_problem, question_key
from citer.errors import InputError

ASKED = ["problem_id", "task", "question", "choices", "messages"]


def load_traffic(folder: Path, tasks: Collection[str]) -> list[Problem]:
    """Return a problem for each question of the tables in a folder, and print how many there are.

    Questions that differ in case and white space only are one. Raises InputError if there is no
    folder, and like `read_served`.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: expected a folder of `citer serve --log`")
    rows = read_served(folder, tasks).select(ASKED).to_pylist()
    # Sorted: which of several spellings is taken does not depend on the order of the files.
    spelled = sorted(map(_problem, rows), key=lambda problem: problem.conversation)
    asked = {_key(problem): problem for problem in spelled}
    text = f"{folder}: {len(asked):,} questions in {len(rows):,} answers"
    Console().print(text, markup=False, highlight=False, soft_wrap=True)
    return [*asked.values()]


def sampled(problems: Sequence[Problem], most: int, seed: int) -> list[Problem]:
    """Return at most `most` of the problems, chosen by a hash of the question and the seed.

    A question that is chosen stays so while no more than `most` are there.
    """

    def place(problem: Problem) -> str:
        return hashlib.sha256(f"{seed} {_key(problem)}".encode()).hexdigest()

    return sorted(problems, key=place)[:most]


def _key(problem: Problem) -> str:
    choices = [(each.label, each.text) for each in problem.choices or ()]
    return f"{problem.task} {question_key(problem.conversation)} {choices}"


def _problem(row: dict[str, Any]) -> Problem:
    unknown = dict.fromkeys(("reference", "answer", "written_by", "audits", "token_ids"))
    return as_problem(row | unknown | {"source": "traffic", "split": ""})
