"""Which split a problem belongs to: by its question alone, and never to two."""

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

from citer.data.problems import Problem, question_key
from citer.schema import SPLITS


def split_by_share(question: str, seed: int, shares: Mapping[str, float]) -> str:
    """A split drawn by the hash of the normalised question, in proportion to `shares`."""
    digest = hashlib.sha256(f"{seed} {question_key(question)}".encode()).hexdigest()
    point = int(digest[:13], 16) / 16**13
    bounds = list(accumulate(shares.values()))
    return list(shares)[bisect_right(bounds, point * bounds[-1])]


class Separated(NamedTuple):
    splits: dict[str, list[Problem]]
    duplicates: list[Problem]  # left out; `split` says where each was to go


def separate(assigned: Iterable[tuple[str, Problem]]) -> Separated:
    """Gather (split, problem) pairs into the four splits.

    A question stays in the split that names it first: it is left out of every other, and so is
    a problem met before.
    """
    separated = Separated({split: [] for split in SPLITS}, [])
    homes: dict[str, str] = {}
    met: set[str] = set()
    for split, problem in assigned:
        crosses = homes.setdefault(question_key(problem.question), split) != split
        duplicate = crosses or problem.problem_id in met
        target = separated.duplicates if duplicate else separated.splits[split]
        target.append(replace(problem, split=split))
        met.add(problem.problem_id)
    return separated
