"""The held-out questions of the preference split, on which no head of a router is trained.

They decide when training stops, calibrate a head, and order the rules that validation tests.
"""

import hashlib
from collections.abc import Iterable
from itertools import compress

import numpy as np

from citer.data.problems import Problem, first_id
from citer.errors import InputError

MOST = 200  # questions that order the rules: more would hardly change the order


def holdout_rows(problem_N: np.ndarray, seed: int, share: float) -> np.ndarray:
    """Return a mask of the held-out rows, N booleans.

    The questions are sorted by a seeded hash; the first `share` of them are held out. Two rows of a
    question are on the same side.
    """
    question_N = [first_id(key) for key in problem_N]

    def place(question: str) -> bytes:
        return hashlib.sha256(f"{seed} {question}".encode()).digest()

    problems = sorted(set(question_N), key=place)
    if len(problems) < 2:
        raise InputError(f"preference split: {len(problems)} problem labelled, expected 2 or more")
    held = set(problems[: min(max(1, round(share * len(problems))), len(problems) - 1)])
    return np.array([question in held for question in question_N])


def held_out(problems: Iterable[Problem], seed: int, share: float) -> list[Problem]:
    """Return the first row of each held-out question, of at most MOST questions, by their ids.

    An id is a hash of the content, so the questions of a large split are a random sample.
    """
    rows = list(problems)
    held_N = holdout_rows(np.array([row.problem_id for row in rows]), seed, share)
    first: dict[str, Problem] = {}
    for row in compress(rows, held_N):
        first.setdefault(first_id(row.problem_id), row)
    return [first[key] for key in sorted(first)[:MOST]]
