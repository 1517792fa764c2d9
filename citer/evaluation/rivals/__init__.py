"""Rivals: the methods that a router must beat, on the same questions, engine and cost.

A rival is a function in a file of this package, and a name in `RIVALS` or, if it learns from the
preference questions, in `LEARNERS`. `evaluate.rivals` lists the names. Reports take everything else
from the rival's `Method` and `Style`.
"""

from collections.abc import Callable, Iterator, Mapping

from citer.evaluation.rivals.learnt import citer_s_rival, co_llm_rival
from citer.evaluation.rivals.oracle import oracle_rival
from citer.evaluation.rivals.query import query_rival
from citer.evaluation.rivals.rival import Lessons, NothingToLearnError, Rival, Setting
from citer.evaluation.rivals.untrained import (
    bild_rival,
    entropy_rival,
    random_rival,
    speculative_rival,
)
from citer.progress import say
from citer.sections import RivalName

RIVALS: Mapping[RivalName, Callable[[Setting], Rival]] = {
    "entropy": entropy_rival,
    "random": random_rival,
    "speculative": speculative_rival,
    "bild": bild_rival,
    "oracle": oracle_rival,
}
LEARNERS: Mapping[RivalName, Callable[[Setting, Lessons], Rival]] = {
    "co_llm": co_llm_rival,
    "query": query_rival,
    "citer_s": citer_s_rival,
}


def enlist(setting: Setting, lessons: Lessons | None) -> Iterator[Rival]:
    """Make the rivals that the parameters list. Those that learn need `lessons`."""
    for name in setting.params.rivals:
        if name in RIVALS:
            yield RIVALS[name](setting)
        elif lessons:
            try:
                yield LEARNERS[name](setting, lessons)
            except NothingToLearnError as error:
                say(f"rivals: {name} is left out: {error}")
