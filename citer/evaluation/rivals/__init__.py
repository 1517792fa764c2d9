"""Rivals: the methods that a router must beat, on the same questions, engine and cost.

A rival is a function in a file of this package, and a name in `RIVALS` or, if it learns from the
preference questions, in `LEARNERS`. `evaluate.rivals` lists the names. Reports take everything else
from the rival's `Method` and `Style`.
"""

from collections.abc import Callable, Iterator, Mapping

from citer.config import RivalName
from citer.evaluation.rivals.certainty import (
    bild,
    confidence,
    entropy,
    low_entropy,
    max_probability,
)
from citer.evaluation.rivals.citer_s import citer_s
from citer.evaluation.rivals.co_llm import co_llm
from citer.evaluation.rivals.oracle import oracle
from citer.evaluation.rivals.query import query
from citer.evaluation.rivals.random_visits import random, random_visits
from citer.evaluation.rivals.rival import (
    Alone,
    Lessons,
    NothingToLearnError,
    Rival,
    Setting,
    by_score,
    quantiles,
)
from citer.evaluation.rivals.speculative import speculative

__all__ = [
    "CERTAINTIES",
    "LEARNERS",
    "RIVALS",
    "Alone",
    "Lessons",
    "Rival",
    "Setting",
    "by_score",
    "enlist",
    "low_entropy",
    "max_probability",
    "quantiles",
    "random",
]

RIVALS: Mapping[RivalName, Callable[[Setting], Rival]] = {
    "entropy": entropy,
    "confidence": confidence,
    "random": random_visits,
    "speculative": speculative,
    "bild": bild,
    "oracle": oracle,
}
LEARNERS: Mapping[RivalName, Callable[[Setting, Lessons], Rival]] = {
    "co_llm": co_llm,
    "query": query,
    "citer_s": citer_s,
}
CERTAINTIES = (low_entropy, max_probability)  # scorers with thresholds from validation


def enlist(setting: Setting, lessons: Lessons | None) -> Iterator[Rival]:
    """Make the rivals that the parameters list. Those that learn need `lessons`."""
    for name in setting.params.rivals:
        if name in RIVALS:
            yield RIVALS[name](setting)
        elif lessons:
            try:
                yield LEARNERS[name](setting, lessons)
            except NothingToLearnError as error:
                lessons.skip(name, str(error))
