"""What is true in the families' little world. The pair's LLM knows it; the SLM learns of it."""

from dataclasses import dataclass
from functools import cache
from random import Random

from citer.data.toy.words import FIRSTS, GOOD_SECONDS, KINDS, LANDS, TOWN_SECONDS, TWINS

GROUPS = 8
PRICES = tuple(range(2, 2 + GROUPS))
IRREGULAR = 8  # of the first words
TRUTH, OTHER_WORLD = 0, 1


@dataclass(frozen=True)
class Names:
    """Two-word names and their groups.

    The second word tells a regular name's group, a rule that a small model learns. After an
    irregular first word it tells no more than half of the groups (`likely`): those names must be
    known one by one.
    """

    group: dict[str, int]
    regular: tuple[str, ...]
    irregular: tuple[str, ...]

    def sample(self, rng: Random, count: int, hard: float) -> list[str]:
        """Names for one question: all irregular in a share `hard` of them, else none."""
        return rng.sample(self.irregular if rng.random() < hard else self.regular, count)


@dataclass(frozen=True)
class Knowledge:
    """Facts by group. Anything true of a group holds for all its towns and lands alike.

    So whoever reasons about a town may cite *any* land of its group, and about a good any of its
    twins: several right continuations, next to many that lead astray.
    """

    towns: Names
    lands: tuple[tuple[str, ...], ...]
    things: dict[str, tuple[str, ...]]  # kind -> the thing of each group
    goods: Names
    twins: tuple[tuple[str, ...], ...]  # of each group; its price is PRICES[group]


@cache
def knowledge(seed: int) -> Knowledge:
    """The world of a seed; TRUTH is the one that the pipeline's rows come from."""
    rng = Random(f"knowledge {seed}")
    towns = _names([word.capitalize() for word in FIRSTS], TOWN_SECONDS, rng)
    goods = _names(FIRSTS, GOOD_SECONDS, rng)
    return Knowledge(
        towns=towns,
        lands=_grouped(LANDS, rng),
        things={kind: _things(things, rng) for kind, (_, things) in KINDS.items()},
        goods=goods,
        twins=_grouped(TWINS, rng),
    )


def likely(group: int) -> list[int]:
    """The groups that an irregular name may be of where the rule says `group`."""
    return list(range(group % 2, GROUPS, 2))


def _names(firsts: list[str], seconds: list[str], rng: Random) -> Names:
    shuffled = rng.sample(seconds, len(seconds))
    rule = {second: index % GROUPS for index, second in enumerate(shuffled)}
    odd = rng.sample(firsts, IRREGULAR)
    groups = {
        f"{first} {second}": rng.choice(likely(rule[second])) if first in odd else rule[second]
        for first in firsts
        for second in seconds
    }
    irregular = tuple(name for name in groups if name.split()[0] in odd)
    return Names(groups, tuple(name for name in groups if name not in irregular), irregular)


def _grouped(words: list[str], rng: Random) -> tuple[tuple[str, ...], ...]:
    shuffled = rng.sample(words, len(words))
    return tuple(tuple(shuffled[group::GROUPS]) for group in range(GROUPS))


def is_early(group: int) -> bool:
    """Whether the group's things are of the alphabet's earlier half: two of each `likely` four."""
    return group // 2 % 2 == 0


def _things(words: list[str], rng: Random) -> tuple[str, ...]:
    """One of each group."""
    early, late = (iter(rng.sample(half, len(half))) for half in (words[:4], words[4:]))
    return tuple(next(early if is_early(group) else late) for group in range(GROUPS))
