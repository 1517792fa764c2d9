"""What is true in the families' little world. The pair's LLM knows it; the SLM learns of it."""

from dataclasses import dataclass
from functools import cache
from itertools import product
from random import Random

from citer.data.toy.words import FIRSTS, GOOD_SECONDS, KINDS, LANDS, TOWN_SECONDS, TWINS

GROUPS = 8
TOWNS = GOODS = 192
PRICES = tuple(range(2, 2 + GROUPS))
TRUTH, OTHER_WORLD = 0, 1


@dataclass(frozen=True)
class Knowledge:
    """Facts by group. Anything true of a group holds for all its towns and lands alike.

    So whoever reasons about a town may cite *any* land of its group, and about a good any of its
    twins: several right continuations, next to many that lead astray.
    """

    town_group: dict[str, int]
    lands: tuple[tuple[str, ...], ...]
    things: dict[str, tuple[str, ...]]  # kind -> the thing of each group
    good_group: dict[str, int]
    twins: tuple[tuple[str, ...], ...]  # of each group; its price is PRICES[group]


@cache
def knowledge(seed: int) -> Knowledge:
    """The world of a seed; TRUTH is the one that the pipeline's rows come from."""
    rng = Random(f"knowledge {seed}")
    towns = [f"{first.capitalize()} {second}" for first, second in product(FIRSTS, TOWN_SECONDS)]
    goods = [f"{first} {second}" for first, second in product(FIRSTS, GOOD_SECONDS)]
    return Knowledge(
        town_group={town: i % GROUPS for i, town in enumerate(rng.sample(towns, TOWNS))},
        lands=_grouped(LANDS, rng),
        things={kind: tuple(rng.sample(things, GROUPS)) for kind, (_, things) in KINDS.items()},
        good_group={good: i % GROUPS for i, good in enumerate(rng.sample(goods, GOODS))},
        twins=_grouped(TWINS, rng),
    )


def _grouped(words: list[str], rng: Random) -> tuple[tuple[str, ...], ...]:
    shuffled = rng.sample(words, len(words))
    return tuple(tuple(shuffled[group::GROUPS]) for group in range(GROUPS))
