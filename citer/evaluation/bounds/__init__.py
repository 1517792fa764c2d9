"""Bounds: what other ways to divide the work reach on the same questions, engine and cost.

They are no candidates: query-level routing chooses a model for a whole answer, the oracle knows the
LLM's answer in advance, and random calls need no reason. A bound is a function in a file of this
package, and a name in `BOUNDS`. `evaluate.bounds` lists the names. Reports take everything else
from the bound's `Method` and `Style`.
"""

from collections.abc import Callable, Iterator, Mapping

from citer.evaluation.bounds.bound import Bound, Lessons, NothingToLearnError, Setting
from citer.evaluation.bounds.oracle import oracle_bound
from citer.evaluation.bounds.query import query_bound
from citer.evaluation.bounds.random import random_bound
from citer.progress import say
from citer.sections import BoundName

LEARNS = "query"
BOUNDS: Mapping[BoundName, Callable[[Setting], Bound]] = {
    "random": random_bound,
    "oracle": oracle_bound,
}


def enlist(setting: Setting, lessons: Lessons | None) -> Iterator[Bound]:
    """Make the bounds that the parameters list. The one that learns needs `lessons`."""
    for name in setting.params.bounds:
        if name in BOUNDS:
            yield BOUNDS[name](setting)
        elif lessons:
            try:
                yield query_bound(setting, lessons)
            except NothingToLearnError as error:
                say(f"rivals: {name} is left out: {error}")
