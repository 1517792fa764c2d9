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
    met_towns: tuple[str, ...]  # as often as they are met: what is irregular is common
    lands: tuple[tuple[str, ...], ...]
    things: dict[str, tuple[str, ...]]  # kind -> the thing of each group
    good_group: dict[str, int]
    twins: tuple[tuple[str, ...], ...]  # of each group; its price is PRICES[group]


@cache
def knowledge(seed: int) -> Knowledge:
    """The world of a seed; TRUTH is the one that the pipeline's rows come from."""
    rng = Random(f"knowledge {seed}")
    town_group, irregular = _names([word.capitalize() for word in FIRSTS], TOWN_SECONDS, rng)
    return Knowledge(
        town_group=town_group,
        met_towns=(*town_group, *irregular),
        lands=_grouped(LANDS, rng),
        things={kind: tuple(rng.sample(things, GROUPS)) for kind, (_, things) in KINDS.items()},
        good_group=_names(FIRSTS, GOOD_SECONDS, rng)[0],
        twins=_grouped(TWINS, rng),
    )


def _names(firsts: list[str], seconds: list[str], rng: Random) -> tuple[dict[str, int], list[str]]:
    """Groups of two-word names, and the irregular names.

    The second word tells the group, unless the first word is irregular: a rule that a small
    model learns, and names that must be known one by one.
    """
    shuffled = rng.sample(seconds, len(seconds))
    rule = {second: index % GROUPS for index, second in enumerate(shuffled)}
    odd = rng.sample(firsts, IRREGULAR)
    groups = {
        f"{first} {second}": rng.randrange(GROUPS) if first in odd else rule[second]
        for first in firsts
        for second in seconds
    }
    return groups, [name for name in groups if name.split()[0] in odd]


def _grouped(words: list[str], rng: Random) -> tuple[tuple[str, ...], ...]:
    shuffled = rng.sample(words, len(words))
    return tuple(tuple(shuffled[group::GROUPS]) for group in range(GROUPS))
