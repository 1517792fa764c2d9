"""Assign problems to splits, so that no question is in two splits.

No head of a router is trained on the held-out questions of the preference split. They decide when
training stops, calibrate a head, and order the rules that validation tests.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import accumulate, compress
from typing import NamedTuple

import numpy as np

from citer.data.problems import Problem, first_id, question_key, seeded
from citer.errors import InputError
from citer.storage.schema import SPLITS

MOST = 200  # held-out questions that order the rules: more would hardly change the order


def split_by_share(question: str, seed: int, shares: Mapping[str, float]) -> str:
    """Return the split of a question, chosen by a hash of it in proportion to `shares`."""
    point = int(seeded(question_key(question), seed)[:13], 16) / 16**13
    bounds = list(accumulate(shares.values()))
    return list(shares)[bisect_right(bounds, point * bounds[-1])]


class Separated(NamedTuple):
    splits: dict[str, list[Problem]]
    duplicates: list[Problem]  # in no split; their field `split` keeps the assigned one


def separate(assigned: Iterable[tuple[str, Problem]]) -> Separated:
    """Collect (split, problem) pairs into the four splits. A question stays in its first one.

    The same question in another split is a duplicate, and so is a problem that occurs twice.
    """
    separated = Separated({split: [] for split in SPLITS}, [])
    homes: dict[str, str] = {}
    seen: set[str] = set()
    for split, problem in assigned:
        crosses = homes.setdefault(question_key(problem.conversation), split) != split
        duplicate = crosses or problem.problem_id in seen
        target = separated.duplicates if duplicate else separated.splits[split]
        target.append(replace(problem, split=split))
        seen.add(problem.problem_id)
    return separated


def check_held_out(problems: Iterable[Problem]) -> None:
    """Raise InputError unless some questions of preference can be held out, and others learnt."""
    if (questions := len({first_id(problem.problem_id) for problem in problems})) < 2:
        raise InputError(f"preference split: {questions} problem, expected 2 or more")


def holdout_rows(problem_N: np.ndarray, seed: int, share: float) -> np.ndarray:
    """Return whether each row is held out: those of the first `share` of questions by a hash."""
    question_N = [first_id(key) for key in problem_N]
    problems = sorted(set(question_N), key=lambda question: seeded(question, seed))
    held = set(problems[: min(max(1, round(share * len(problems))), len(problems) - 1)])
    return np.array([question in held for question in question_N])


def held_out(problems: Iterable[Problem], seed: int, share: float) -> list[Problem]:
    """Return the first row of at most MOST held-out questions, by ids, which are hashes."""
    rows = list(problems)
    held_N = holdout_rows(np.array([row.problem_id for row in rows]), seed, share)
    first: dict[str, Problem] = {}
    for row in compress(rows, held_N):
        first.setdefault(first_id(row.problem_id), row)
    return [first[key] for key in sorted(first)[:MOST]]
