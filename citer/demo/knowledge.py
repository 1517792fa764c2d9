"""The facts behind the embedded questions. The LLM knows them; `finetune` teaches the SLM some."""

from dataclasses import dataclass
from functools import cache
from random import Random

# The words of the questions. All are common, so that each is one token.
# ruff: noqa: SIM905 - split texts stay readable where list literals would run over pages
NAMES = (
    "Ada Amir Anna Ben Carl Clara Dina Emil Eva Finn Greta Hana Hugo Ida Ivan Jana "
    "Karl Lea Lina Marc Mia Nora Omar Otto Paul Rosa Sami Sara Tara Tom Vera Yann"
).split()

# Openings of sentences. They are equally likely and mean nothing.
OPENINGS = (
    "Again Also Besides Beyond Clearly Finally First Firstly Further Hence Here Indeed Later "
    "Likewise Look Meanwhile Moreover Next Note Now Plainly Second See Simply Still Surely Then "
    "Thus Today Truly Well Yet"
).split()

# Names of towns and goods have two words. A model must read both.
FIRSTS = (
    "amber black blue brown cold dark dry gold green grey old red silver warm white wild".split()
)
TOWN_SECONDS = (
    "Bank Bay Bridge Castle Creek Dale Field Ford Gate Harbor Haven Hill Lake Mill Port Rock"
).split()
GOOD_SECONDS = (
    "bags bells bottles bowls boxes candles chairs cups jars knives lamps mirrors pens plates "
    "ropes tables"
).split()

LANDS = (
    "Alba Arda Boria Calda Corvia Delta Doria Elba Fenia Galda Hestia Ionia Jura Kelda Lycia "
    "Medra Narva Olbia Parma Quira Rhona Sarda Tavia Umbra Valda Wexia Xenia Yorra Zadar Zelda "
    "Troja Sparta"
).split()
TWINS = (
    "apples axes beans belts brooms carrots cloaks drums eggs flutes gloves hammers hats kites "
    "leeks masks nails onions pans peas pins rings saws scarves shells shirts shoes socks spoons "
    "stones toys wheels"
).split()

# kind of thing -> (what people do with it, the things)
KINDS = {
    "fruit": ("eat", "bananas cherries figs grapes lemons melons pears plums".split()),
    "drink": ("drink", "cider cocoa coffee juice milk soda tea water".split()),
    "animal": ("keep", "cats cows dogs ducks goats horses pigs sheep".split()),
}

GROUPS = 8
PRICES = tuple(range(2, 2 + GROUPS))
IRREGULAR = 8  # of the first words
TRUTH, OTHER_WORLD = 0, 1


@dataclass(frozen=True)
class Design:
    """What questions are like: the openings of sentences, and shares about irregular names.

    `lure` is the chance that an irregular name is of the group that its second word gives to
    regular ones. Who follows that rule is then seldom wrong, and as sure as when right.
    """

    openings: int = len(OPENINGS)
    hard_math: float = 0.55
    hard_mc: float = 0.6
    lure: float = 0.0


@dataclass(frozen=True)
class Names:
    """Two-word names and their groups.

    The second word of a regular name determines its group. A small model learns this rule. After
    an irregular first word, the second word only excludes half of the groups (see `likely`). A
    model must know each of these names by itself.
    """

    group: dict[str, int]
    regular: tuple[str, ...]
    irregular: tuple[str, ...]

    def sample(self, rng: Random, count: int, hard: float) -> list[str]:
        """Draw names for one question: all irregular with probability `hard`, else all regular."""
        return rng.sample(self.irregular if rng.random() < hard else self.regular, count)


@dataclass(frozen=True)
class Knowledge:
    """Facts by group. A fact about a group is true for all its towns, lands and goods.

    A rationale may therefore cite *any* land of a town's group, or any twin of a good. A prefix has
    several correct next tokens, and many wrong ones.
    """

    towns: Names
    lands: tuple[tuple[str, ...], ...]
    things: dict[str, tuple[str, ...]]  # kind -> the thing of each group
    goods: Names
    twins: tuple[tuple[str, ...], ...]  # of each group; its price is PRICES[group]
    openings: list[str]
    design: Design


@cache
def knowledge(seed: int, design: Design | None = None) -> Knowledge:
    """Return the facts of a seed. The pipeline uses TRUTH. `design`: by default, as shipped."""
    rng, design = Random(f"knowledge {seed}"), design or Design()
    towns = _names([word.capitalize() for word in FIRSTS], TOWN_SECONDS, rng, design.lure)
    goods = _names(FIRSTS, GOOD_SECONDS, rng, design.lure)
    return Knowledge(
        openings=OPENINGS[: design.openings],
        design=design,
        towns=towns,
        lands=_grouped(LANDS, rng),
        things={kind: _things(things, rng) for kind, (_, things) in KINDS.items()},
        goods=goods,
        twins=_grouped(TWINS, rng),
    )


def likely(group: int) -> list[int]:
    """Return the possible groups of an irregular name for which the rule gives `group`."""
    return list(range(group % 2, GROUPS, 2))


def _names(firsts: list[str], seconds: list[str], rng: Random, lure: float) -> Names:
    shuffled = rng.sample(seconds, len(seconds))
    rule = {second: index % GROUPS for index, second in enumerate(shuffled)}
    odd = rng.sample(firsts, IRREGULAR)

    def drawn(group: int) -> int:
        return group if lure and rng.random() < lure else rng.choice(likely(group))

    groups = {
        f"{first} {second}": drawn(rule[second]) if first in odd else rule[second]
        for first in firsts
        for second in seconds
    }
    irregular = tuple(name for name in groups if name.split()[0] in odd)
    return Names(groups, tuple(name for name in groups if name not in irregular), irregular)


def _grouped(words: list[str], rng: Random) -> tuple[tuple[str, ...], ...]:
    shuffled = rng.sample(words, len(words))
    return tuple(tuple(shuffled[group::GROUPS]) for group in range(GROUPS))


def is_early(group: int) -> bool:
    """Whether a group's things are early in the alphabet: so are those of half of `likely`."""
    return group // 2 % 2 == 0


def _things(words: list[str], rng: Random) -> tuple[str, ...]:
    early, late = (iter(rng.sample(half, len(half))) for half in (words[:4], words[4:]))
    return tuple(next(early if is_early(group) else late) for group in range(GROUPS))


def rival(rng: Random, group: int) -> int:
    """Draw another, equally likely group. Its things are in the other half of the alphabet."""
    return rng.choice([other for other in likely(group) if is_early(other) != is_early(group)])
