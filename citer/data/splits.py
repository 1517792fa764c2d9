"""Assign problems to splits, so that no question is in two splits."""

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

from citer.data.problems import Problem, question_key
from citer.storage.schema import SPLITS


def split_by_share(question: str, seed: int, shares: Mapping[str, float]) -> str:
    """Return the split of a question, chosen by a hash of it in proportion to `shares`."""
    digest = hashlib.sha256(f"{seed} {question_key(question)}".encode()).hexdigest()
    point = int(digest[:13], 16) / 16**13
    bounds = list(accumulate(shares.values()))
    return list(shares)[bisect_right(bounds, point * bounds[-1])]


class Separated(NamedTuple):
    splits: dict[str, list[Problem]]
    duplicates: list[Problem]  # in no split; their field `split` keeps the assigned one


def separate(assigned: Iterable[tuple[str, Problem]]) -> Separated:
    """Collect (split, problem) pairs into the four splits.

    A question belongs to the first split that it is assigned to. The same question in another
    split is a duplicate, and so is a problem that occurs twice.
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
