"""The multiple-choice family: two towns lie in lands, and each land's people favour a thing.

Every land of a town's group is a valid citation; one of another group is fatal. Options pair the
two things with others as likely, in alphabetical order, so that what one cites decides
the letter: binding letters freely would take the tiny pair longer to learn than all the rest.
"""

from itertools import product
from random import Random
from typing import Any

from citer.data.toy.knowledge import Knowledge, is_early, likely
from citer.data.toy.words import KINDS, OPENINGS

LABELS = "ABCD"
HARD = 0.6  # share of questions whose lands follow no rule


def draw(rng: Random, facts: Knowledge) -> dict[str, Any]:
    """One raw row: {"question", "choices": {"text", "label"}, "answerKey", "cot"}."""
    towns, kinds = facts.towns.sample(rng, 2, HARD), rng.sample(list(KINDS), 2)
    verbs = [KINDS[kind][0] for kind in kinds]
    groups = [facts.towns.group[town] for town in towns]
    things = [facts.things[kind][group] for kind, group in zip(kinds, groups, strict=True)]
    pairs = [
        sorted((facts.things[kind][group], facts.things[kind][_rival(rng, group)]))
        for kind, group in zip(kinds, groups, strict=True)
    ]
    texts = [" and ".join(both) for both in product(*pairs)]
    answer = " and ".join(things)
    label = LABELS[texts.index(answer)]
    citations = " ".join(
        f"{rng.choice(OPENINGS)}, {town} lies in {rng.choice(facts.lands[group])}: "
        f"people {verb} {thing}."
        for town, group, verb, thing in zip(towns, groups, verbs, things, strict=True)
    )
    return {
        "question": (
            f"Which {kinds[0]} do people {verbs[0]} in {towns[0]}, "
            f"and which {kinds[1]} do they {verbs[1]} in {towns[1]}?"
        ),
        "choices": {"text": texts, "label": list(LABELS)},
        "answerKey": label,
        "cot": f"{citations} Therefore, the answer is {answer} ({label.lower()}).",
    }


def _rival(rng: Random, group: int) -> int:
    """A group that is as likely for an irregular town, its things of the alphabet's other half."""
    return rng.choice([other for other in likely(group) if is_early(other) != is_early(group)])
