"""What is true in the families' little world. The pair's LLM knows it; the SLM learns of it."""

from dataclasses import dataclass
from functools import cache
from random import Random

from citer.data.toy.words import FIRSTS, GOOD_SECONDS, KINDS, LANDS, TOWN_SECONDS, TWINS

GROUPS = 8
PRICES = tuple(range(2, 2 + GROUPS))
IRREGULAR = 6  # of the first words
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
    return Knowledge(
        town_group=_named_groups([word.capitalize() for word in FIRSTS], TOWN_SECONDS, rng),
        lands=_grouped(LANDS, rng),
        things={kind: tuple(rng.sample(things, GROUPS)) for kind, (_, things) in KINDS.items()},
        good_group=_named_groups(FIRSTS, GOOD_SECONDS, rng),
        twins=_grouped(TWINS, rng),
    )


def _named_groups(firsts: list[str], seconds: list[str], rng: Random) -> dict[str, int]:
    """Groups of two-word names: the second word tells it, unless the first is irregular.

    The regular ones are a rule that a small model learns; the others must be known one by one.
    """
    shuffled = rng.sample(seconds, len(seconds))
    rule = {second: index % GROUPS for index, second in enumerate(shuffled)}
    irregular = rng.sample(firsts, IRREGULAR)
    return {
        f"{first} {second}": rng.randrange(GROUPS) if first in irregular else rule[second]
        for first in firsts
        for second in seconds
    }


def _grouped(words: list[str], rng: Random) -> tuple[tuple[str, ...], ...]:
    shuffled = rng.sample(words, len(words))
    return tuple(tuple(shuffled[group::GROUPS]) for group in range(GROUPS))
